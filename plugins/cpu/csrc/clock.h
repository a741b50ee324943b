// Where the time of a model's runs goes, by native step: for `octavo bench kernels --step`. A model that nobody profiles has none.
#pragma once
#include <chrono>
#include <cstddef>
#include <vector>

namespace octavo {

// One for all workers; each writes to its own memory only.
class StepClock {
public:
    enum Charge { Working, Waiting };

    // `entries`: the model's steps, and one more for what is prepared before the first.
    StepClock(int threads, size_t entries) : entries_(entries), own_(size_t(threads)) {
        for (Own& own : own_) own.seconds.assign(2 * entries, 0.0);
    }

    void start(int worker) { own_[size_t(worker)].since = Time::now(); }

    // What has passed since this worker's last call goes to one entry.
    void charge(int worker, size_t entry, Charge charge) {
        Own& own = own_[size_t(worker)];
        const Time::time_point now = Time::now();
        own.seconds[2 * entry + size_t(charge)] += std::chrono::duration<double>(now - own.since).count();
        own.since = now;
    }

    // Means over the workers, so that they add up to the time that passed: [entries][working, waiting].
    void read(double* seconds) const {
        for (size_t i = 0; i < 2 * entries_; ++i) {
            double sum = 0.0;
            for (const Own& own : own_) sum += own.seconds[i];
            seconds[i] = sum / double(own_.size());
        }
    }

private:
    using Time = std::chrono::steady_clock;
    struct alignas(64) Own {
        Time::time_point since;
        std::vector<double> seconds;
    };

    size_t entries_;
    std::vector<Own> own_;
};

}  // namespace octavo

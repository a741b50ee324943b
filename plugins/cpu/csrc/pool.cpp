#include "pool.h"

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace octavo {

namespace {

// About 20 microseconds of spinning at a barrier, and 100 between jobs: a decode step's next job comes within that.
constexpr int kBarrierSpins = 500;
constexpr int kIdleSpins = 3000;

inline void relax() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

void pin(int core) {
#if defined(__linux__)
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);  // refused where the core is not ours: run unpinned
#else
    (void)core;
#endif
}

}  // namespace

void Barrier::wait() {
    if (count_ == 1) return;
    const unsigned round = round_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) == count_ - 1) {
        arrived_.store(0, std::memory_order_relaxed);
        round_.store(round + 1, std::memory_order_release);
        return;
    }
    for (int spin = 0; round_.load(std::memory_order_acquire) == round; ++spin) {
        if (spin < kBarrierSpins) relax();
        else std::this_thread::yield();
    }
}

Pool::Pool(int threads, const std::vector<int>& cores) : threads_(threads), barrier_(threads), done_(threads) {
    for (int worker = 1; worker < threads; ++worker) {
        const int core = worker < int(cores.size()) ? cores[size_t(worker)] : -1;
        workers_.emplace_back([this, worker, core] { work(worker, core); });
    }
}

Pool::~Pool() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        stopping_.store(true);
        ticket_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    for (auto& worker : workers_) worker.join();
}

void Pool::run(const std::function<void(int)>& job) {
    if (threads_ > 1) {
        job_ = &job;
        {
            std::lock_guard<std::mutex> lock(mutex_);
            ticket_.fetch_add(1, std::memory_order_release);
        }
        wake_.notify_all();
    }
    job(0);
    done_.wait();
}

void Pool::work(int worker, int core) {
    if (core >= 0) pin(core);
    unsigned seen = 0;
    for (;;) {
        for (int spin = 0; spin < kIdleSpins && ticket_.load(std::memory_order_acquire) == seen; ++spin) relax();
        if (ticket_.load(std::memory_order_acquire) == seen) {
            std::unique_lock<std::mutex> lock(mutex_);
            wake_.wait(lock, [&] { return ticket_.load(std::memory_order_acquire) != seen; });
        }
        ++seen;
        if (stopping_.load()) return;
        (*job_)(worker);
        done_.wait();
    }
}

}  // namespace octavo

// A persistent pool whose threads run one function together (SPMD), and the barrier they meet at.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace octavo {

// Sense-reversing barrier: spins for a few microseconds, which is what a balanced step needs, then yields, so that a
// thread whose peer lost its core does not burn its own.
class Barrier {
public:
    explicit Barrier(int count) : count_(count) {}
    void wait();

private:
    const int count_;
    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<unsigned> round_{0};
};

// `threads` workers, the caller among them. Workers spin briefly for the next job, then sleep.
class Pool {
public:
    // `cores` pins worker i to cores[i] where it is not empty; the caller is worker 0 and is never pinned.
    Pool(int threads, const std::vector<int>& cores);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    int threads() const { return threads_; }
    Barrier& barrier() { return barrier_; }

    // Run job(worker) on every worker, the caller included; returns when all have finished. A job must not throw.
    void run(const std::function<void(int)>& job);

private:
    void work(int worker, int core);

    const int threads_;
    Barrier barrier_;
    Barrier done_;
    std::vector<std::thread> workers_;
    const std::function<void(int)>* job_ = nullptr;
    std::atomic<unsigned> ticket_{0};
    std::atomic<bool> stopping_{false};
    std::mutex mutex_;
    std::condition_variable wake_;
};

}  // namespace octavo

// Memory that runs out: no exception may leave a thread of a parallel loop, nor a function that Python calls.
#pragma once

#include <atomic>
#include <new>
#include <stdexcept>

namespace cpu {

// What the threads of one loop share: the first that finds no memory ends what the others have yet to begin.
class Failure {
  public:
    template <class F>
    void guard(F&& run) {
        if (seen_.load(std::memory_order_relaxed)) return;
        try {
            run();
        } catch (const std::bad_alloc&) {
            seen_.store(true, std::memory_order_relaxed);
        }
    }

    // For the calling thread, when the loop has ended.
    void check() const {
        if (seen_.load(std::memory_order_relaxed)) throw std::bad_alloc();
    }

  private:
    std::atomic<bool> seen_{false};
};

// 0, or 1 when `run` found no memory.
template <class F>
int status(F&& run) {
    try {
        run();
        return 0;
    } catch (const std::bad_alloc&) {
        return 1;
    } catch (const std::length_error&) {  // more than any memory
        return 1;
    }
}

}  // namespace cpu

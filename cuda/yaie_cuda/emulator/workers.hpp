// System threads that take blocks of a launch one after the other.
#pragma once
#include <chrono>
#include <condition_variable>
#include <thread>

#include "block.hpp"
#include "faults.hpp"
#include "schedule.hpp"

namespace emu {

inline void fiber_entry() {
    Block& b = block();
    const void* bottom = nullptr;
    size_t bytes = 0;
    enter_stack(nullptr, &bottom, &bytes);
    if (!b.host_stack) {  // the first fiber comes from the host's stack
        b.host_stack = bottom;
        b.host_stack_bytes = bytes;
    }
    acquire(&b.run->order);
    b.run->body(b.run->params);
    Fiber& f = *b.current;
    if (b.barriers[0].count)
        fail(b.barriers[0].at, "ended, while %u threads wait in __syncthreads", b.barriers[0].count);
    copy_commit();
    copy_wait(0);
    release(&b.run->done);
    f.state = State::ended;
    ++b.ended;
    b.warp[f.warp].live &= ~(1u << f.thread.lane);
    b.warp[f.warp].ready &= ~(1u << f.thread.lane);
    pass_on();
    __builtin_unreachable();
}

inline void* reserve(size_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? nullptr : memory;
}

// Makes room for `threads` fibers; false when the system has no memory left.
inline bool make_room(Block& b, unsigned threads) {
    if (threads > b.capacity) {
        if (b.stacks) munmap(b.stacks, b.capacity * stack_bytes);
        if (b.fibers) munmap(b.fibers, b.capacity * sizeof(Fiber));
        b.capacity = threads;
        b.stacks = static_cast<unsigned char*>(reserve(threads * stack_bytes));
        b.fibers = static_cast<Fiber*>(reserve(threads * sizeof(Fiber)));
        if (!b.stacks || !b.fibers) return false;
        for (unsigned i = 0; i < threads; ++i) mprotect(b.stacks + i * stack_bytes, page, PROT_NONE);
    }
    if (b.memory && thread_sanitizer) {  // the last block's accesses to shared memory are no race with the next one's
        munmap(b.memory, shared_span);
        b.memory = nullptr;
    }
    if (!b.memory) {
        b.memory = static_cast<unsigned char*>(reserve(shared_span));
        if (!b.memory) return false;
        mprotect(b.memory, page, PROT_NONE);
        mprotect(b.memory + shared_span - page, page, PROT_NONE);
    }
    return true;
}

// Shared memory ends as close to the guard page as its alignment lets it. All of it is NaN at first.
inline void lay_out_shared(Block& b) {
    unsigned char* end = b.memory + shared_span - page;
    const size_t bytes = b.run->what.shared_bytes, aligned = (bytes + 1023) / 1024 * 1024;
    b.shape.shared = end - aligned;
    unpoison(b.memory + page, shared_span - 2 * page);
    std::memset(b.shape.shared, 0xff, aligned);
    poison(b.memory + page, size_t(b.shape.shared - (b.memory + page)));
    poison(b.shape.shared + bytes, aligned - bytes);
}

inline void check_slack(Block& b) {
    if (address_sanitizer) return;
    const size_t bytes = b.run->what.shared_bytes, aligned = (bytes + 1023) / 1024 * 1024;
    for (size_t i = bytes; i < aligned; ++i)
        if (b.shape.shared[i] != 0xff) {
            const uint3 at = b.shape.block_index;
            char text[160];
            std::snprintf(text, sizeof text, "block (%u,%u,%u) wrote byte %zu of %zu bytes of shared memory", at.x,
                          at.y, at.z, i, bytes);
            if (!b.run->failed.exchange(true)) b.run->reason = text;
            return;
        }
}

inline void start_fibers(Block& b) {
    b.ended = 0;
    for (unsigned w = 0; w < b.warps; ++w) {
        const unsigned lanes = b.threads - w * warp_lanes;
        Warp& warp = b.warp[w];
        warp.live = warp.ready = lanes >= warp_lanes ? ~0u : (1u << lanes) - 1u;
        warp.pending = 0;
        for (Group& group : warp.groups) group.arrived = 0;
    }
    for (Barrier& barrier : b.barriers) {
        barrier.count = 0;
        std::memset(barrier.waiting, 0, sizeof barrier.waiting);
    }
    for (unsigned i = 0; i < b.threads; ++i) {
        Fiber& f = b.fibers[i];
        f.thread = {{i, 0, 0}, i % warp_lanes, &b.shape};
        f.linear = i;
        f.warp = i / warp_lanes;
        f.state = State::ready;
        f.operation = "";
        f.at = {"", 0};
        f.stack = b.stacks + i * stack_bytes;
        f.fake_stack = nullptr;
        f.copies_begun = f.copies_done = f.groups_begun = f.groups_done = 0;
        f.race = race_fiber();
        prepare(f.context, f.stack, stack_bytes, fiber_entry);
    }
}

inline void run_block(Block& b, uint64_t number) {
    const Launch& what = b.run->what;
    b.shape.grid = {what.grid[0], what.grid[1], what.grid[2]};
    b.shape.block = {what.threads, 1, 1};
    b.shape.block_index = {unsigned(number % what.grid[0]), unsigned(number / what.grid[0] % what.grid[1]),
                           unsigned(number / what.grid[0] / what.grid[1])};
    b.random = what.seed * 0x9e3779b97f4a7c15u + number * 0xd1342543de82ef95u + 0x2545f4914f6cdd1du;
    if (!b.random) b.random = 1;
    lay_out_shared(b);
    b.host.race = race_host();
    release(&b.run->order);
    start_fibers(b);
    b.current = &b.host;
    pass_on();
    b.current = nullptr;
    // The sanitizer gives the number of a fiber that is gone to a new one, and takes the accesses of both for one's.
    const bool many = b.run->blocks * b.threads > most_race_fibers;
    for (unsigned i = 0; thread_sanitizer && many && i < b.threads; ++i) end_race_fiber(b.fibers[i].race);
    unpoison(b.stacks, b.threads * stack_bytes);  // frames that were left for good keep their red zones
    if (!b.run->failed) check_slack(b);
    unpoison(b.memory + page, shared_span - 2 * page);
}

// Names this system thread as one that takes blocks.
class Worker {
  public:
    explicit Worker(Run& run) : run_(run) {
        const std::lock_guard<std::mutex> hold(run_.workers_lock);
        run_.workers.push_back(pthread_self());
    }
    ~Worker() {
        const std::lock_guard<std::mutex> hold(run_.workers_lock);
        for (pthread_t& one : run_.workers)
            if (pthread_equal(one, pthread_self())) {
                one = run_.workers.back();
                run_.workers.pop_back();
                break;
            }
    }
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

  private:
    Run& run_;
};

// Ends a launch that takes longer than it may, from a thread of its own.
class Watch {
  public:
    explicit Watch(Run& run) : run_(run) {
        if (run.what.limit_ms) thread_ = std::thread([this] { wait(); });
    }
    ~Watch() {
        {
            const std::lock_guard<std::mutex> hold(mutex_);
            over_ = true;
        }
        changed_.notify_all();
        if (thread_.joinable()) thread_.join();
    }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

  private:
    void wait() {
        std::unique_lock<std::mutex> hold(mutex_);
        std::chrono::milliseconds time(run_.what.limit_ms);
        while (!changed_.wait_for(hold, time, [this] { return over_; })) {
            const std::lock_guard<std::mutex> workers(run_.workers_lock);
            for (const pthread_t one : run_.workers) pthread_kill(one, time_is_up);
            time = std::chrono::milliseconds(20);
        }
    }
    Run& run_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool over_ = false;
    std::thread thread_;
};

// Takes one block after the other, `most` of them, on this system thread.
inline void take_blocks(Run& run, uint64_t most) {
    static thread_local Block mine;  // kept from launch to launch for its stacks
    const SignalStack stack;
    const Worker worker(run);
    const Launch& what = run.what;
    mine.run = &run;
    mine.threads = what.threads;
    mine.warps = (what.threads + warp_lanes - 1) / warp_lanes;
    mine.host_stack = nullptr;
    running = &mine;
    for (uint64_t number; most > 0 && !run.failed && (number = run.next_block++) < run.blocks; --most) {
        if (make_room(mine, what.threads))
            run_block(mine, number);
        else if (!run.failed.exchange(true))
            run.reason = "no memory for the stacks of the block's threads";
    }
    running = nullptr;
}

// Under ThreadSanitizer every block has a system thread of its own, made before any block starts, and takes its turn
// from a counter that the sanitizer does not see: nothing but fences orders two blocks.
inline void take_turns(Run& run) {
    std::atomic<uint64_t> turn{0};
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < run.blocks; ++i)
        threads.emplace_back([&run, &turn, i] {
            while (turn < i) std::this_thread::yield();
            take_blocks(run, 1);
            ++turn;
        });
    for (std::thread& thread : threads) thread.join();
    acquire(&run.done);
}

inline void run_blocks(Run& run) {
    if (thread_sanitizer) return take_turns(run);
    std::unique_ptr<FaultGuard> guard;
    std::unique_ptr<Watch> watch;
    if (!address_sanitizer) {
        guard.reset(new FaultGuard);
        watch.reset(new Watch(run));
    }
    const uint64_t at_once = run.what.os_threads < run.blocks ? run.what.os_threads : run.blocks;
    if (at_once <= 1) return take_blocks(run, run.blocks);
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < at_once; ++i) threads.emplace_back([&run] { take_blocks(run, run.blocks); });
    for (std::thread& thread : threads) thread.join();
}

}  // namespace emu

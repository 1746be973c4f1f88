// What GCC calls for the OpenMP of the CPU kernels, on threads and locks that ThreadSanitizer follows: it knows nothing
// of the barriers of GNU OpenMP. A team lives for one parallel region.

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <vector>

namespace {

struct Team {
    unsigned size;
    pthread_barrier_t barrier;
    std::mutex lock;
    long loops = 0;  // that were begun
    long next = 0, stop = 0, step = 1, chunk = 1;
};

thread_local Team* team = nullptr;
thread_local unsigned number = 0;
thread_local long loops = 0;  // that this thread came to

bool take(long* start, long* stop) {
    const std::lock_guard guard(team->lock);
    if (team->next >= team->stop) return false;
    *start = team->next;
    *stop = team->next = std::min(team->stop, team->next + team->chunk * team->step);
    return true;
}

}  // namespace

extern "C" {

void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned) {
    Team made{threads == 0 ? 4 : threads};
    pthread_barrier_init(&made.barrier, nullptr, made.size);
    const auto run = [&](unsigned which) {
        team = &made;
        number = which;
        loops = 0;
        body(data);
    };
    std::vector<std::thread> others;
    for (unsigned which = 1; which < made.size; ++which) others.emplace_back(run, which);
    run(0);
    for (std::thread& other : others) other.join();
    team = nullptr;
    number = 0;
    pthread_barrier_destroy(&made.barrier);
}

int omp_get_num_threads() { return team == nullptr ? 1 : static_cast<int>(team->size); }
int omp_get_thread_num() { return static_cast<int>(number); }
void GOMP_barrier() { pthread_barrier_wait(&team->barrier); }

bool GOMP_loop_nonmonotonic_dynamic_start(long start, long end, long step, long chunk, long* from, long* to) {
    {
        const std::lock_guard guard(team->lock);
        if (team->loops == loops) {
            ++team->loops;
            team->next = start, team->stop = end, team->step = step, team->chunk = chunk;
        }
        ++loops;
    }
    return take(from, to);
}

bool GOMP_loop_nonmonotonic_dynamic_next(long* from, long* to) { return take(from, to); }
void GOMP_loop_end() { GOMP_barrier(); }
void GOMP_loop_end_nowait() {}
}

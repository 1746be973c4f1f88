// Bad addresses, and kernels that never end: the launch ends with a message; the process lives on.
#pragma once
#include <dlfcn.h>
#include <signal.h>
#include <ucontext.h>

#include <mutex>

#include "block.hpp"

namespace emu {

// The signal of a launch whose time is up. Nobody minds one that comes late: it is ignored where nobody handles it.
inline constexpr int time_is_up = SIGURG;
inline constexpr int fault_signals[] = {SIGSEGV, SIGBUS, SIGFPE, time_is_up};
inline constexpr int most_signals = sizeof fault_signals / sizeof *fault_signals;
inline struct sigaction previous_action[most_signals];

inline void* faulting_instruction(void* context) {
#if defined(__x86_64__)
    return reinterpret_cast<void*>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
    return reinterpret_cast<void*>(static_cast<ucontext_t*>(context)->uc_mcontext.pc);
#else
    return context ? nullptr : nullptr;
#endif
}

// "library.so+0x1234" of an instruction, which addr2line turns into a source line.
inline std::string symbol(void* instruction) {
    Dl_info info{};
    if (!instruction || !dladdr(instruction, &info)) return "";
    char text[64];
    const auto offset = static_cast<char*>(instruction) - static_cast<char*>(info.dli_fbase);
    std::snprintf(text, sizeof text, "+0x%lx", static_cast<unsigned long>(offset));
    return std::string(" [") + info.dli_fname + text + "]";
}

inline void on_fault(int number, siginfo_t* info, void* context) {
    if (running && running->in_kernel()) {
        const Block& b = *running;
        const std::string place = symbol(faulting_instruction(context));
        const auto address = static_cast<unsigned char*>(info->si_addr);
        const unsigned char* stack = b.current->stack;
        if (number == time_is_up)
            fail(b.current->at, "it did not end within %.3g s and was stopped%s", double(b.run->what.limit_ms) / 1000,
                 place.c_str());
        if (number == SIGFPE) fail({"", 0}, "division by zero%s", place.c_str());
        if (address >= stack && address < stack + page) fail({"", 0}, "the thread's stack is full%s", place.c_str());
        if (address >= b.memory && address < b.memory + shared_span)
            fail({"", 0}, "access outside of shared memory%s", place.c_str());
        fail({"", 0}, "access to bad address %p%s", info->si_addr, place.c_str());
    }
    if (number == time_is_up) return;  // between two blocks; it comes again
    for (int i = 0; i < most_signals; ++i)
        if (fault_signals[i] == number) {
            // Not ours: the instruction runs again under whoever was there before.
            sigaction(number, &previous_action[i], nullptr);
        }
}

// Installed while launches run. An alternate stack, because a full stack is one of the faults.
class FaultGuard {
  public:
    FaultGuard() {
        const std::lock_guard<std::mutex> hold(lock());
        if (users()++ == 0) {
            struct sigaction action{};
            action.sa_sigaction = on_fault;
            // Not masked while handled, because the handler leaves through a switch of stacks.
            action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
            for (int i = 0; i < most_signals; ++i) sigaction(fault_signals[i], &action, &previous_action[i]);
        }
    }
    ~FaultGuard() {
        const std::lock_guard<std::mutex> hold(lock());
        if (--users() == 0)
            for (int i = 0; i < most_signals; ++i) sigaction(fault_signals[i], &previous_action[i], nullptr);
    }
    FaultGuard(const FaultGuard&) = delete;
    FaultGuard& operator=(const FaultGuard&) = delete;

  private:
    static std::mutex& lock() {
        static std::mutex mutex;
        return mutex;
    }
    static int& users() {
        static int count = 0;
        return count;
    }
};

// The alternate stack of one system thread.
class SignalStack {
  public:
    SignalStack() : bytes_(new char[size]) {
        stack_t mine{};
        mine.ss_sp = bytes_.get();
        mine.ss_size = size;
        sigaltstack(&mine, &previous_);
    }
    ~SignalStack() { sigaltstack(&previous_, nullptr); }
    SignalStack(const SignalStack&) = delete;
    SignalStack& operator=(const SignalStack&) = delete;

  private:
    static constexpr size_t size = 64 << 10;
    std::unique_ptr<char[]> bytes_;
    stack_t previous_{};
};

}  // namespace emu

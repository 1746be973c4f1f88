// Switching between the stacks of fibers: by hand on x86-64, by ucontext elsewhere.
#pragma once
#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__) && !defined(EMU_UCONTEXT)
#define EMU_UCONTEXT 1
#endif
#ifdef EMU_UCONTEXT
#include <ucontext.h>
#endif

namespace emu {

#ifdef EMU_UCONTEXT
struct Context {
    ucontext_t saved;
};
inline void prepare(Context& context, unsigned char* stack, size_t size, void (*entry)()) {
    getcontext(&context.saved);
    context.saved.uc_stack.ss_sp = stack;
    context.saved.uc_stack.ss_size = size;
    context.saved.uc_link = nullptr;
    makecontext(&context.saved, entry, 0);
}
inline void switch_to(Context& from, Context& to) { swapcontext(&from.saved, &to.saved); }
#else
struct Context {
    void* stack_pointer;
};
// Keeps what a called function must keep, exchanges the stacks, returns into the other fiber.
extern "C" void emu_exchange_stacks(void** kept, void* wanted);
asm(R"(
.text
.p2align 4
.globl emu_exchange_stacks
.hidden emu_exchange_stacks
.type emu_exchange_stacks, @function
emu_exchange_stacks:
    leaq -48(%rsp), %rsp
    movq %rbx, 0(%rsp)
    movq %rbp, 8(%rsp)
    movq %r12, 16(%rsp)
    movq %r13, 24(%rsp)
    movq %r14, 32(%rsp)
    movq %r15, 40(%rsp)
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    movq 0(%rsp), %rbx
    movq 8(%rsp), %rbp
    movq 16(%rsp), %r12
    movq 24(%rsp), %r13
    movq 32(%rsp), %r14
    movq 40(%rsp), %r15
    leaq 48(%rsp), %rsp
    ret
.size emu_exchange_stacks, .-emu_exchange_stacks
)");
inline void prepare(Context& context, unsigned char* stack, size_t size, void (*entry)()) {
    // Six registers, the address to return to, and a null one above it, where an unwinder stops. The ABI wants the
    // stack pointer 8 short of a multiple of 16 at a function's first instruction.
    const uintptr_t top = reinterpret_cast<uintptr_t>(stack + size) & ~uintptr_t{63};
    void** frame = reinterpret_cast<void**>(top) - 8;
    for (int i = 0; i < 8; ++i) frame[i] = nullptr;
    frame[6] = reinterpret_cast<void*>(entry);
    context.stack_pointer = static_cast<void*>(frame);
}
inline void switch_to(Context& from, Context& to) { emu_exchange_stacks(&from.stack_pointer, to.stack_pointer); }
#endif

}  // namespace emu

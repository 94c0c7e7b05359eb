// The list of a launch's faults, and what becomes of a kernel that would end its process: signals
// of the processor are faults of the running thread, and so is a kernel that never ends.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdio>

#include "runtime.h"

namespace emulator {

static bool like(const Fault& x, const Fault& y) {
    return x.address == y.address && x.other_address == y.other_address && x.line == y.line &&
           x.argument == y.argument && !strcmp(x.kind, y.kind) && !strcmp(x.file, y.file) &&
           !strcmp(x.name, y.name);
}

bool only_first() { return running->faults->most == 1; }

static unsigned found_in, found;  // a block, and its errors

unsigned faults_of_block() { return found_in == block_number ? found : 0; }

bool keep(const Fault& fault) {
    Faults& faults = *running->faults;
    if (only_first() && fault.severity == NOTE) return false;
    found = faults_of_block() + (fault.severity == ERROR);
    found_in = block_number;
    for (uint64_t i = 0; i < faults.count; i++)
        if (like(faults.list[i], fault)) {
            faults.list[i].times++;
            return false;
        }
    if (faults.count < faults.most)
        faults.list[faults.count++] = fault;
    else
        faults.lost++;
    return only_first();
}

// ---- signals

#if defined(__x86_64__)
static uintptr_t& program_counter(ucontext_t* context) {
    return reinterpret_cast<uintptr_t&>(context->uc_mcontext.gregs[REG_RIP]);
}
static uintptr_t& stack_pointer(ucontext_t* context) {
    return reinterpret_cast<uintptr_t&>(context->uc_mcontext.gregs[REG_RSP]);
}
#else
static uintptr_t& program_counter(ucontext_t* context) {
    return reinterpret_cast<uintptr_t&>(context->uc_mcontext.pc);
}
static uintptr_t& stack_pointer(ucontext_t* context) {
    return reinterpret_cast<uintptr_t&>(context->uc_mcontext.sp);
}
#endif

#if defined(__x86_64__)
constexpr size_t RETURN_ADDRESS = 8;  // a function begins with it on the stack
#else
constexpr size_t RETURN_ADDRESS = 0;
#endif
constexpr int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
static struct sigaction before[4];
static stack_t stack_before;
alignas(64) static char signal_stack[64 * 1024];

static Fault of_signal(int signal, const siginfo_t* info, uintptr_t address) {
    auto target = reinterpret_cast<uintptr_t>(info->si_addr);
    auto stack = reinterpret_cast<uintptr_t>(current->stack);
    Place place = at(address);
    if (signal == SIGFPE) return describe("division by zero", place, "divides by zero");
    if (signal == SIGSEGV && target - stack < PAGE)
        return describe("stack overflow", place,
                        "needs more than the %zu KB of local memory that a thread has here",
                        STACK_BYTES / 1024);
    if (signal == SIGILL)
        return describe("crash", place, "runs into what the compiler takes for unreachable");
    return describe("out of bounds", place, "touches memory through a %s pointer",
                    target < 4096 ? "null" : "wild");
}

// Of a thread of the kernel: it is left where it is. Of anything else: as if there were no handler.
static void handle(int signal, siginfo_t* info, void* context) {
    auto* where = static_cast<ucontext_t*>(context);
    auto* stack = reinterpret_cast<const void*>(stack_pointer(where));
    // a stack that is too small is left downwards, by a page at most
    if (!on_a_stack(stack) && !on_a_stack(static_cast<const char*>(stack) + PAGE)) {
        end_signals();
        return;
    }
    report(of_signal(signal, info, program_counter(where) + 1));
    program_counter(where) = reinterpret_cast<uintptr_t>(leave);
    stack_pointer(where) =
        reinterpret_cast<uintptr_t>(current->stack) + STACK_STRIDE - 256 - RETURN_ADDRESS;
}

void begin_signals() {
    stack_t stack{};
    stack.ss_sp = signal_stack;
    stack.ss_size = sizeof signal_stack;
    sigaltstack(&stack, &stack_before);
    struct sigaction action{};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int i = 0; i < 4; i++) sigaction(SIGNALS[i], &action, &before[i]);
}

void end_signals() {
    for (int i = 0; i < 4; i++) sigaction(SIGNALS[i], &before[i], nullptr);
    sigaltstack(&stack_before, nullptr);
}

// ---- a process of its own

static void out_of_time(int, siginfo_t*, void* context) {
    uintptr_t address = program_counter(static_cast<ucontext_t*>(context)) + 1;
    keep(describe("time limit", at(address, last_access),
                  "has not ended after %llu s of the processor",
                  static_cast<unsigned long long>(running->seconds)));
    running->faults->ended = 1;
    _exit(0);
}

void begin_process() {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    struct sigaction action{};
    action.sa_sigaction = out_of_time;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGPROF, &action, nullptr);
    itimerval timer{
        {0,                        0},
        {time_t(running->seconds), 0}
    };
    setitimer(ITIMER_PROF, &timer, nullptr);
}

}  // namespace emulator

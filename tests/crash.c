/* A program that crashes says where. */
#define _POSIX_C_SOURCE 200809L
#include "tests/crash.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>

#if defined(__GLIBC__)
#  include <execinfo.h>
#else
static int backtrace(void **out, int n)
{
    (void)out;
    (void)n;
    return 0;
}

static void backtrace_symbols_fd(void *const *stack, int n, int fd)
{
    (void)stack;
    (void)n;
    (void)fd;
}
#endif

enum { DEPTH = 64 };

/* Allocates nothing: the heap may be what is broken. */
static void print_stack(int signal)
{
    static const char head[] = "the stack of a fatal signal:\n";
    void *stack[DEPTH];
    const int depth = backtrace(stack, DEPTH);
    if (write(STDERR_FILENO, head, sizeof head - 1) > 0)
        backtrace_symbols_fd(stack, depth, STDERR_FILENO);
    (void)raise(signal); /* the handler is gone */
}

void crash_prints_stack(void)
{
    static const int fatal[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    struct sigaction action = {.sa_handler = print_stack, .sa_flags = (int)SA_RESETHAND};
    void *first[1];
    (void)backtrace(first, 1); /* its first call loads a library */
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++) {
        struct sigaction found;
        if (sigaction(fatal[i], NULL, &found) == 0 && found.sa_handler == SIG_DFL)
            (void)sigaction(fatal[i], &action, NULL);
    }
}

/* Forked children that make checks. */
#define _GNU_SOURCE
#include "tests/children.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/check.h"

void *children_share(size_t bytes)
{
    void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED)
        abort();
    return data;
}

void children_unshare(void *data, size_t bytes)
{
    (void)munmap(data, bytes);
}

void children_meet(_Atomic int *arrived, int n)
{
    const double end = check_now_ms() + CHILDREN_MEETING_MS;
    atomic_fetch_add(arrived, 1);
    while (atomic_load(arrived) < n && check_now_ms() < end)
        check_sleep_ms(1);
    CHECK_MSG(atomic_load(arrived) >= n, "%d of %d came", atomic_load(arrived), n);
}

/* ------------------------------------------------------------------------------------- children */

#ifdef __SANITIZE_ADDRESS__
int __lsan_do_recoverable_leak_check(void);
#endif

/* _exit does not look for leaks. */
static void check_leaks(void)
{
#ifdef __SANITIZE_ADDRESS__
    CHECK(__lsan_do_recoverable_leak_check() == 0);
#endif
}

static pid_t start(int index, int n, void (*body)(int index, int n, void *argument), void *argument)
{
    const pid_t pid = fork();
    if (pid < 0)
        abort();
    if (pid > 0)
        return pid;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int before = check_failures();
    body(index, n, argument);
    check_leaks();
    _exit(check_failures() > before ? EXIT_FAILURE : EXIT_SUCCESS);
}

/* --------------------------------------------------------------------------------------- parent */

/* False if the child still runs. */
static bool reap(struct child_end *out, pid_t pid, int options)
{
    int status = 0;
    const pid_t found = waitpid(pid, &status, options);
    if (found == 0)
        return false;
    CHECK(found == pid);
    out->code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    out->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return true;
}

/* Reap those that have ended. How many have not? */
static int reap_all(struct child_end *out, const pid_t *pids, bool *ended, int n)
{
    int left = 0;
    for (int i = 0; i < n; i++) {
        if (!ended[i])
            ended[i] = reap(&out[i], pids[i], WNOHANG);
        left += !ended[i];
    }
    return left;
}

void children_run(struct child_end *out, int n, int deadline_ms,
                  void (*body)(int index, int n, void *argument), void *argument)
{
    pid_t pids[CHILDREN_MAX];
    bool ended[CHILDREN_MAX] = {false};
    if (n > CHILDREN_MAX)
        abort();
    fflush(stdout);
    memset(out, 0, (size_t)n * sizeof *out);
    for (int i = 0; i < n; i++)
        pids[i] = start(i, n, body, argument);
    const double end = check_now_ms() + deadline_ms;
    while (reap_all(out, pids, ended, n) > 0 && check_now_ms() < end)
        check_sleep_ms(1);
    for (int i = 0; i < n; i++) {
        if (ended[i])
            continue;
        out[i].late = kill(pids[i], SIGKILL) == 0;
        (void)reap(&out[i], pids[i], 0);
    }
}

bool children_check(const struct child_end *end, int index)
{
    const char *why = end->late          ? "it ran past the deadline"
                      : end->signal != 0 ? strsignal(end->signal)
                                         : "a check failed";
    return CHECK_MSG(end->code == 0, "process %d: %s", index, why);
}

void children_check_killed(const struct child_end *ends, int n, int killed)
{
    for (int i = 0; i < n; i++)
        if (i != killed)
            children_check(&ends[i], i);
        else
            CHECK_MSG(ends[i].signal == SIGKILL && !ends[i].late,
                      "process %d, to be killed: code %d, signal %d%s", i, ends[i].code,
                      ends[i].signal, ends[i].late ? ", late" : "");
}

void children_run_all(int n, int deadline_ms, void (*body)(int index, int n, void *argument),
                      void *argument)
{
    struct child_end ends[CHILDREN_MAX];
    children_run(ends, n, deadline_ms, body, argument);
    children_check_killed(ends, n, -1);
}

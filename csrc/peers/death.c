/* What the system says of another process of this host. */
#define _GNU_SOURCE
#include "csrc/peers/death.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#  define SYS_pidfd_open 434 /* on every architecture; since Linux 5.3 */
#endif

/* What Linux 6.15 and later say of a process that its parent has waited for. The layout and the
 * numbers are the kernel's (linux/pidfd.h), which older headers do not have. */
struct pidfd_info {
    uint64_t mask, cgroup;
    uint32_t pid, tgid, ppid, ids[8];
    int32_t exit_code;
};
#define PIDFD_GET_INFO_ _IOWR(0xff, 11, struct pidfd_info)
#define PIDFD_INFO_EXIT_ UINT64_C(8)

struct process_stat {
    char state;
    uint64_t start;
    int exit_code; /* as waitpid has it; 0 also if the system keeps it from us */
};

/* Field `wanted` of /proc/PID/stat, 3 or more; NULL if there is none. The name, field 2, ends with
 * the last ')'. */
static const char *field(const char *line, int wanted)
{
    const char *at = strrchr(line, ')');
    for (int i = 3; i <= wanted && at != NULL; i++)
        at = strchr(at + 1, ' ');
    return at == NULL ? NULL : at + 1;
}

static bool read_fields(struct process_stat *out, const char *line)
{
    const char *state = field(line, 3), *start = field(line, 22), *code = field(line, 52);
    if (state == NULL || start == NULL)
        return false;
    out->state = *state;
    out->start = strtoull(start, NULL, 10);
    out->exit_code = code == NULL ? 0 : (int)strtol(code, NULL, 10);
    return out->start != 0;
}

static bool read_stat(struct process_stat *out, int32_t pid)
{
    char path[40], line[1024];
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    const size_t n = fread(line, 1, sizeof line - 1, file);
    (void)fclose(file);
    line[n] = '\0';
    return read_fields(out, line);
}

uint64_t tri_process_start(int32_t pid)
{
    struct process_stat found;
    return read_stat(&found, pid) ? found.start : 0;
}

int tri_process_watch(int32_t pid, uint64_t start)
{
    if (pid <= 0 || start == 0)
        return TRI_PROCESS_UNWATCHED;
    const int pidfd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0u); /* closed by exec */
    if (pidfd < 0)
        return errno == ESRCH ? TRI_PROCESS_ENDED : TRI_PROCESS_UNWATCHED;
    /* Only now: a pid that a pidfd holds cannot pass to another process unnoticed. */
    const uint64_t found = tri_process_start(pid);
    if (found == 0 || found == start)
        return pidfd;
    (void)close(pidfd);
    return TRI_PROCESS_ENDED;
}

static const char *signal_name(int signal)
{
    switch (signal) {
    case SIGKILL:
        return " (SIGKILL)";
    case SIGTERM:
        return " (SIGTERM)";
    case SIGINT:
        return " (SIGINT)";
    case SIGSEGV:
        return " (SIGSEGV)";
    case SIGBUS:
        return " (SIGBUS)";
    case SIGABRT:
        return " (SIGABRT)";
    default:
        return "";
    }
}

/* While a process exits, which takes long where a driver frees its devices, it has a code already;
 * a stopped one has that of the stop. */
static bool has_ended(const struct process_stat *stat)
{
    const bool stopped = stat->state == 'T' || stat->state == 't';
    return stat->state == 'Z' || stat->state == 'X' || (stat->exit_code != 0 && !stopped);
}

/* How it ended, as waitpid has it; false if the system does not say. Until its parent has waited
 * for a process, /proc has it; afterwards its pidfd. */
static bool read_code(int *out, int pidfd, int32_t pid, uint64_t start)
{
    struct process_stat found;
    struct pidfd_info info = {.mask = PIDFD_INFO_EXIT_};
    if (read_stat(&found, pid) && found.start == start) {
        *out = found.exit_code;
        return has_ended(&found);
    }
    if (pidfd < 0 || ioctl(pidfd, PIDFD_GET_INFO_, &info) != 0)
        return false;
    *out = info.exit_code;
    return (info.mask & PIDFD_INFO_EXIT_) != 0;
}

struct tri_death_text tri_death_text(int pidfd, int32_t pid, uint64_t start)
{
    struct tri_death_text out;
    int code = 0;
    out.known = read_code(&code, pidfd, pid, start);
    if (out.known && WIFSIGNALED(code))
        (void)snprintf(out.text, sizeof out.text, "was killed by signal %d%s", WTERMSIG(code),
                       signal_name(WTERMSIG(code)));
    else if (out.known && WIFEXITED(code) && WEXITSTATUS(code) != 0)
        (void)snprintf(out.text, sizeof out.text, "ended with exit code %d", WEXITSTATUS(code));
    else
        (void)snprintf(out.text, sizeof out.text, "ended");
    return out;
}

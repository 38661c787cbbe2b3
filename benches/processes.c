/* Ranks that have a process each: fork, a meeting in memory that they share, and the end of all. */
#define _GNU_SOURCE
#include "benches/processes.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TOLD = 128, VALUES = 128 };

struct bench_meeting {
    pthread_barrier_t barrier;
    unsigned char told[TOLD];
    double values[BENCH_MAX_RANKS][VALUES]; /* of each process */
};

/* This process among those of bench_split. */
static struct {
    int number, n;
    struct bench_meeting *meeting; /* NULL: there are no others */
} place = {0, 1, NULL};

int bench_process(void)
{
    return place.number;
}

int bench_processes(void)
{
    return place.n;
}

/* ------------------------------------------------------------------------------------- children */

static void *share(size_t bytes)
{
    void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return bench_must(data == MAP_FAILED ? NULL : data);
}

/* As fork; says why it fails. What is in the buffers of files is written once, by the parent. */
static pid_t start(void)
{
    const pid_t parent = getpid();
    /* Who starts a program may have it ignored: then no status comes. */
    (void)signal(SIGCHLD, SIG_DFL);
    fflush(NULL);
    const pid_t child = fork();
    if (child < 0)
        perror("fork");
    if (child == 0 && (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent))
        _exit(EXIT_FAILURE);
    return child;
}

/* Of a child. One that has exited has said why. */
static bool has_succeeded(const char *who, int status)
{
    if (WIFSIGNALED(status))
        fprintf(stderr, "%s: its process was ended by a signal: %s\n", who,
                strsignal(WTERMSIG(status)));
    return WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS;
}

int bench_ask(int (*ask)(void *argument), void *argument)
{
    int status = 0, *shared = share(sizeof *shared);
    const pid_t child = start();
    if (child == 0) {
        *shared = ask(argument);
        _exit(EXIT_SUCCESS);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || !has_succeeded("devices", status))
        exit(EXIT_FAILURE);
    const int answer = *shared;
    (void)munmap(shared, sizeof *shared);
    return answer;
}

/* They would end with this process, too; but their GPUs shall be free when it has ended. */
static _Noreturn void kill_all(const pid_t *children, int n)
{
    for (int rank = 0; rank < n; rank++)
        if (children[rank] != 0)
            (void)kill(children[rank], SIGKILL);
    for (int rank = 0; rank < n; rank++)
        if (children[rank] != 0)
            (void)waitpid(children[rank], NULL, 0);
    exit(EXIT_FAILURE);
}

/* A shell that became this program by exec may have left it other children. */
static _Noreturn void wait_for(pid_t *children, int n)
{
    for (int left = n; left > 0;) {
        char who[16];
        int status = 0, rank = 0;
        const pid_t ended = wait(&status);
        while (rank < n && children[rank] != ended)
            rank++;
        if (ended < 0 && errno != EINTR)
            kill_all(children, n);
        if (rank == n)
            continue;
        children[rank] = 0; /* another process may have the number from now on */
        left--;
        (void)snprintf(who, sizeof who, "rank %d", rank);
        if (!has_succeeded(who, status))
            kill_all(children, n);
    }
    exit(EXIT_SUCCESS);
}

void bench_split(int n)
{
    pid_t children[BENCH_MAX_RANKS];
    place.meeting = bench_meeting_open(n);
    place.n = n;
    for (place.number = 0; place.number < n; place.number++) {
        children[place.number] = start();
        if (children[place.number] < 0)
            kill_all(children, place.number);
        if (children[place.number] > 0)
            continue;
        if (place.number > 0 && freopen("/dev/null", "w", stdout) == NULL) {
            perror("/dev/null");
            bench_fail();
        }
        return;
    }
    wait_for(children, n);
}

_Noreturn void bench_fail(void)
{
    if (place.meeting == NULL)
        exit(EXIT_FAILURE);
    fflush(NULL);
    _exit(EXIT_FAILURE);
}

_Noreturn void bench_refuse(const char *format, ...)
{
    va_list values;
    while (place.number > 0) /* the end of the first one ends this one */
        (void)pause();
    va_start(values, format);
    (void)vfprintf(stderr, format, values);
    va_end(values);
    (void)fputc('\n', stderr);
    bench_fail();
}

int bench_status(bool good)
{
    return good || place.number > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* -------------------------------------------------------------------------------------- meeting */

struct bench_meeting *bench_meeting_open(int threads)
{
    pthread_barrierattr_t shared;
    if (place.meeting != NULL)
        return place.meeting;
    struct bench_meeting *meeting = share(sizeof *meeting);
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&meeting->barrier, &shared, (unsigned)threads);
    pthread_barrierattr_destroy(&shared);
    return meeting;
}

void bench_meeting_close(struct bench_meeting *meeting)
{
    if (meeting == place.meeting)
        return;
    pthread_barrier_destroy(&meeting->barrier);
    (void)munmap(meeting, sizeof *meeting);
}

void bench_meet(const struct bench *bench)
{
    (void)pthread_barrier_wait(&bench->meeting->barrier);
}

/* The second meeting: all have read. */
static void most_of_few(const struct bench *bench, double *values, size_t n)
{
    struct bench_meeting *meeting = bench->meeting;
    memcpy(meeting->values[place.number], values, n * sizeof *values);
    bench_meet(bench);
    for (int process = 0; process < place.n; process++)
        for (size_t i = 0; i < n; i++)
            values[i] = fmax(values[i], meeting->values[process][i]);
    bench_meet(bench);
}

void bench_most(const struct bench *bench, double *values, size_t n)
{
    for (size_t at = 0; place.n > 1 && at < n; at += VALUES)
        most_of_few(bench, values + at, n - at < VALUES ? n - at : VALUES);
}

void bench_least(const struct bench *bench, double *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        values[i] = -values[i];
    bench_most(bench, values, n);
    for (size_t i = 0; i < n; i++)
        values[i] = -values[i];
}

size_t bench_sum(const struct bench *bench, size_t value)
{
    _Static_assert((int)BENCH_MAX_RANKS <= (int)VALUES, "a value of each process is told at once");
    double values[BENCH_MAX_RANKS] = {0}, sum = 0;
    values[place.number] = (double)value;
    bench_most(bench, values, (size_t)place.n);
    for (int process = 0; process < place.n; process++)
        sum += values[process];
    return (size_t)sum;
}

void bench_tell(const struct bench *bench, void *data, size_t bytes)
{
    struct bench_meeting *meeting = bench->meeting;
    if (place.n == 1)
        return;
    if (bytes > TOLD)
        bench_refuse("%zu bytes to tell, at most %d", bytes, (int)TOLD);
    if (place.number == 0)
        memcpy(meeting->told, data, bytes);
    bench_meet(bench);
    memcpy(data, meeting->told, bytes);
    bench_meet(bench);
}

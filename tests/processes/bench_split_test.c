/* The processes of a program that measures (benches/processes.h): what they tell each other, who prints, and
 * that none is left when one has failed. */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "benches/processes.h"
#include "tests/check.h"
#include "tests/children.h"

enum { N = 3, MANY = 300, DEADLINE_MS = 20000, FIRST = 10 /* characters of the first line */ };

/* Of benches/bench.c, which the processes use without the rest of it. */
void *bench_must(void *memory)
{
    if (memory == NULL)
        abort();
    return memory;
}

static struct bench open_bench(void)
{
    const int rank = bench_process();
    return (struct bench){
        .ranks = N, .first = rank, .end = rank + 1, .meeting = bench_meeting_open(N)};
}

/* ----------------------------------------------------------------- what they tell each other */

/* Of each value one process has the most, i + 1.5, and another the least, -i - 1. */
static double value(int process, int i)
{
    static const double of[N] = {1.5, 0, -1};
    const double shift = of[(i + process) % N];
    return shift > 0 ? i + shift : shift < 0 ? shift - i : 0.25;
}

static void combine(const struct bench *bench)
{
    double most[MANY], least[MANY];
    for (int i = 0; i < MANY; i++)
        most[i] = least[i] = value(bench_process(), i);
    bench_most(bench, most, MANY);
    bench_least(bench, least, MANY);
    for (int i = 0; i < MANY; i++) {
        CHECK_MSG(most[i] == i + 1.5, "value %d: the most is %g", i, most[i]);
        CHECK_MSG(least[i] == -i - 1, "value %d: the least is %g", i, least[i]);
    }
}

static void tell(int index, int n, void *argument)
{
    (void)index, (void)n, (void)argument;
    bench_split(N);
    const struct bench bench = open_bench();
    char told[128] = "";
    CHECK(bench_processes() == N);
    for (int round = 0; round < 20; round++) {
        combine(&bench);
        CHECK(bench_sum(&bench, (size_t)(round + 10 * bench_process())) ==
              (size_t)(N * round + 30));
        if (bench_process() == 0)
            (void)snprintf(told, sizeof told, "round %d", round);
        bench_tell(&bench, told, sizeof told);
        CHECK(strtol(told + strlen("round "), NULL, 10) == round);
        bench_meet(&bench);
    }
    bench_meeting_close(bench.meeting);
}

static void tell_nobody(int index, int n, void *argument)
{
    (void)index, (void)n, (void)argument;
    double least = 3;
    struct bench bench = {.ranks = 1, .end = 1, .meeting = bench_meeting_open(1)};
    bench_least(&bench, &least, 1);
    bench_tell(&bench, &least, sizeof least);
    bench_meet(&bench);
    CHECK(least == 3 && bench_sum(&bench, 7) == 7);
    CHECK(bench_process() == 0 && bench_processes() == 1);
    CHECK(bench_status(true) == EXIT_SUCCESS && bench_status(false) == EXIT_FAILURE);
    bench_meeting_close(bench.meeting);
}

/* ------------------------------------------------------------------------------ who prints, and ends */

static void print(void)
{
    printf("process %d\n", bench_process());
    fflush(stdout);
}

static void end_well(void)
{
    _exit(bench_status(true));
}

/* Of all the first alone says it: the program would kill it, if others did while it prints. */
static void end_wrong(void)
{
    if (bench_process() == 0)
        check_sleep_ms(50);
    print();
    _exit(bench_status(false));
}

static void refuse(void)
{
    bench_refuse("process %d refuses", bench_process());
}

static void be_killed(void)
{
    (void)raise(SIGKILL);
}

static void kill_parent(void)
{
    (void)kill(getppid(), SIGKILL);
    (void)pause();
}

struct ending {
    const char *what;
    int process; /* which ends so, while others wait for it; -1: all */
    void (*end)(void);
    int code, signal; /* of the program */
    const char *printed;
};

static const struct ending endings[] = {
    {"all end well", -1, end_well, EXIT_SUCCESS, 0, ""},
    {"all have found something wrong", -1, end_wrong, EXIT_FAILURE, 0, "process 0\n"},
    {"all refuse", -1, refuse, EXIT_FAILURE, 0, ""},
    {"one fails", 2, bench_fail, EXIT_FAILURE, 0, ""},
    {"one is killed", 1, be_killed, EXIT_FAILURE, 0, ""},
    {"the parent is killed", 1, kill_parent, -1, SIGKILL, ""},
};

struct program {
    const struct ending *ending;
    int pipe[2]; /* its stdout */
};

static void run_program(int index, int n, void *argument)
{
    (void)index, (void)n;
    const struct program *program = argument;
    const struct ending *ending = program->ending;
    (void)dup2(program->pipe[1], STDOUT_FILENO);
    (void)close(program->pipe[1]);
    bench_split(N);
    const struct bench bench = open_bench();
    print();
    bench_meet(&bench);
    if (ending->process < 0 || ending->process == bench_process())
        ending->end();
    if (ending->process >= 0)
        bench_meet(&bench);
}

/* All that is printed until no process is left that could, or nothing comes for too long. */
static bool read_all(int fd, char *out, size_t room)
{
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    size_t used = 0;
    ssize_t n = 0;
    while (poll(&readable, 1, DEADLINE_MS) == 1 && (n = read(fd, out + used, room - 1 - used)) > 0)
        used += (size_t)n;
    out[used] = '\0';
    return n == 0 && used > 0;
}

static void end(const struct ending *ending)
{
    struct program program = {.ending = ending};
    struct child_end found;
    char printed[64];
    check_begin("%s", ending->what);
    if (pipe(program.pipe) != 0)
        abort();
    const double begin = check_now_ms();
    children_run(&found, 1, DEADLINE_MS, run_program, &program);
    (void)close(program.pipe[1]);
    CHECK_MSG(read_all(program.pipe[0], printed, sizeof printed), "a process is left");
    CHECK_MSG(check_now_ms() - begin < DEADLINE_MS / 4, "it took %.0f ms", check_now_ms() - begin);
    CHECK_MSG(found.code == ending->code && found.signal == ending->signal,
              "its code is %d, its signal %d", found.code, found.signal);
    CHECK_MSG(strncmp(printed, "process 0\n", FIRST) == 0 &&
                  strcmp(printed + FIRST, ending->printed) == 0,
              "it printed \"%s\"", printed);
    (void)close(program.pipe[0]);
    check_end();
}

/* --------------------------------------------------------------------------------- questions */

static int answer(void *argument)
{
    return *(const int *)argument;
}

static int fail(void *argument)
{
    (void)argument;
    exit(EXIT_FAILURE);
}

static void ask(int index, int n, void *argument)
{
    (void)index, (void)n;
    CHECK(bench_ask(answer, argument) == 42);
}

static void ask_in_vain(int index, int n, void *argument)
{
    (void)index, (void)n;
    (void)bench_ask(fail, argument);
    CHECK_MSG(false, "the program went on");
    _exit(EXIT_SUCCESS);
}

static void run(const char *what, void (*body)(int index, int n, void *argument), int code)
{
    struct child_end found;
    int asked = 42;
    check_begin("%s", what);
    children_run(&found, 1, DEADLINE_MS, body, &asked);
    CHECK_MSG(found.code == code && found.signal == 0, "its code is %d, its signal %d", found.code,
              found.signal);
    check_end();
}

int main(void)
{
    run("three processes tell each other", tell, EXIT_SUCCESS);
    run("one process has nobody to tell", tell_nobody, EXIT_SUCCESS);
    run("a question", ask, EXIT_SUCCESS);
    run("a question that fails", ask_in_vain, EXIT_FAILURE);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        end(&endings[i]);
    return check_finish("bench_split_test");
}

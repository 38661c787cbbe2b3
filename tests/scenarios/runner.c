/* Starts each scenario in a process of its own, ends those that hang, and prints the table. */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/faults/figures.h"
#include "tests/scenarios/child.h"

enum { SLOWER = CHECK_SANITIZED ? 8 : 1, RUNS = CHECK_SANITIZED ? 1 : 3 };
enum { ROWS_MAX = 128, HANG_S = 60, LONG_S = 300, NUMBERS = 36 };

/* What is known of a scenario after its runs. */
struct row {
    const struct scenario *scenario;
    int runs, worst_us;
    bool good;
    char says[200];
};

struct session {
    const char *backend;
    int size, runs, n;
    char **numbers; /* those that are wanted; none: all */
    struct row rows[ROWS_MAX];
};

static int bound_ms(const struct session *session, const struct scenario *scenario)
{
    return SLOWER * (strcmp(session->backend, "nccl") == 0 ? scenario->nccl_ms : scenario->host_ms);
}

/* ------------------------------------------------------------------------------- one process */

struct process {
    pid_t id;
    int pipe;     /* its outcome comes here */
    FILE *output; /* what it prints */
};

/* `scenario`, so many times; as execv wants it. */
static _Noreturn void become(const struct scenario *scenario, int runs, int pipe)
{
    char number[3][16], option[] = "--run", program[] = "scenario", name[128];
    char *arguments[] = {program, option, name, number[0], number[1], NULL};
    (void)snprintf(name, sizeof name, "%s", scenario->name);
    (void)snprintf(number[0], sizeof number[0], "%d", runs);
    (void)snprintf(number[1], sizeof number[1], "%d", pipe);
    (void)execv("/proc/self/exe", arguments);
    _exit(127);
}

static bool start(struct process *process, const struct scenario *scenario, int runs)
{
    int ends[2];
    process->output = tmpfile();
    if (!CHECK(process->output != NULL) || !CHECK(pipe(ends) == 0))
        return false;
    fflush(stdout);
    process->id = fork();
    if (process->id == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* nothing that hangs outlives this process */
        (void)close(ends[0]);
        (void)dup2(fileno(process->output), STDOUT_FILENO);
        (void)dup2(fileno(process->output), STDERR_FILENO);
        become(scenario, runs, ends[1]);
    }
    (void)close(ends[1]);
    process->pipe = ends[0];
    return CHECK(process->id > 0);
}

/* When the process has ended, and its wait status; one that hangs is killed. */
static double wait_for(const struct process *process, int *status, int limit_s)
{
    const struct timespec pause = {0, 1000000};
    const double end = check_now_ms() + limit_s * 1e3;
    while (waitpid(process->id, status, WNOHANG) == 0) {
        if (!CHECK_MSG(check_now_ms() < end, "it hangs: killed after %d s", limit_s)) {
            (void)kill(process->id, SIGKILL);
            (void)waitpid(process->id, status, 0);
            break;
        }
        (void)nanosleep(&pause, NULL);
    }
    return check_now_ms();
}

static void print_output(FILE *output)
{
    char line[1024];
    rewind(output);
    while (fgets(line, sizeof line, output) != NULL)
        printf("    | %s", line);
}

/* Longer where the environment asks for more. */
static int limit_s(const struct scenario *scenario)
{
    if ((scenario->flags & SCENARIO_LONG) == 0)
        return SLOWER * HANG_S;
    return SLOWER * LONG_S + scenario_number("TRIB_TEST_SCENARIO_SECONDS", 0) +
           SLOWER * (scenario_number("TRIB_TEST_SCENARIO_RACES", 0) +
                     scenario_number("TRIB_TEST_SCENARIO_ABORTS", 0));
}

static void run_process(struct row *row, int runs)
{
    struct process process;
    struct outcome outcome = {.worst_us = -1};
    int status = -1;
    if (!start(&process, row->scenario, runs))
        return;
    const double ended_at = wait_for(&process, &status, limit_s(row->scenario));
    const bool told = read(process.pipe, &outcome, sizeof outcome) == (ssize_t)sizeof outcome;
    (void)close(process.pipe);
    CHECK_MSG(!WIFSIGNALED(status), "killed by signal %d", WTERMSIG(status));
    CHECK_MSG(WIFSIGNALED(status) || status == 0, "exit status %d", WEXITSTATUS(status));
    if (CHECK_MSG(told, "it says nothing") && outcome.left_at > 0) {
        const int us = (int)(1000 * (ended_at - outcome.left_at));
        outcome.worst_us = us > outcome.worst_us ? us : outcome.worst_us;
        outcome.runs = 1;
    }
    row->runs += outcome.runs;
    row->worst_us = outcome.worst_us > row->worst_us ? outcome.worst_us : row->worst_us;
    (void)snprintf(row->says, sizeof row->says, "%s", outcome.says);
    if (check_failed() || getenv("TRIB_TEST_VERBOSE") != NULL)
        print_output(process.output);
    (void)fclose(process.output);
}

/* ------------------------------------------------------------------------------- all of them */

static void run(struct session *session, struct row *row)
{
    const struct scenario *scenario = row->scenario;
    const int bound = bound_ms(session, scenario);
    if (bound == 0)
        return;
    const bool leaves = (scenario->flags & SCENARIO_LEAVES) != 0;
    const bool once = (scenario->flags & SCENARIO_LONG) != 0;
    check_begin("%s: %d. %s", session->backend, scenario->number, scenario->name);
    for (int i = 0; i < (leaves ? session->runs : 1) && !check_failed(); i++)
        run_process(row, leaves || once ? 1 : session->runs);
    CHECK_MSG(check_failed() || row->worst_us >= 0, "it measures nothing");
    CHECK_MSG(row->worst_us <= 1000 * bound,
              "the last rank was back after %.1f ms, the bound is %d", row->worst_us / 1e3, bound);
    row->good = !check_failed();
    check_end();
}

static bool wanted(const struct session *session, int number)
{
    bool found = *session->numbers == NULL;
    for (char **one = session->numbers; *one != NULL; one++)
        found = found || atoi(*one) == number;
    return found;
}

static void add_rows(struct session *session, int number, const struct scenario *table)
{
    for (; table->number != 0; table++)
        if (table->number == number && session->n < ROWS_MAX)
            session->rows[session->n++] = (struct row){.scenario = table, .worst_us = -1};
}

static void print_row(const struct session *session, const struct row *row)
{
    const struct scenario *scenario = row->scenario;
    const int bound = bound_ms(session, scenario);
    printf("%3d  %-66s  %-7s", scenario->number, scenario->name, session->backend);
    if (bound == 0)
        printf("     -  %s\n", scenario->why);
    else
        printf("  %4d  %10.2f  %8d%s\n", row->runs, row->worst_us < 0 ? 0 : row->worst_us / 1e3,
               bound, row->good ? "" : "  FAILED");
    if (row->says[0] != '\0')
        printf("     %s\n", row->says);
}

/* The scenario of that name runs here: "--run NAME RUNS PIPE". */
static int run_here(const struct session *session, const struct scenario *more, char **arguments)
{
    const struct scenario *const tables[] = {scenarios, more};
    for (int i = 0; i < 2; i++)
        for (const struct scenario *one = tables[i]; one->number != 0; one++) {
            if (strcmp(one->name, arguments[2]) != 0)
                continue;
            if ((one->flags & SCENARIO_EXACT) != 0)
                figures_exact(arguments);
            const struct child child = {one, session->backend, session->size, atoi(arguments[3]),
                                        atoi(arguments[4])};
            return child_run(&child);
        }
    return 2;
}

int scenarios_main(const char *backend, int size, const struct scenario *more, char **arguments)
{
    static struct session session;
    char name[64];
    session.backend = backend;
    session.size = size;
    if (arguments[1] != NULL && strcmp(arguments[1], "--run") == 0)
        return run_here(&session, more, arguments);
    session.runs = scenario_number("TRIB_TEST_SCENARIO_RUNS", RUNS);
    session.numbers = arguments + 1;
    for (int number = 1; number <= NUMBERS; number++) {
        add_rows(&session, number, scenarios);
        add_rows(&session, number, more);
    }
    for (int i = 0; i < session.n; i++)
        if (wanted(&session, session.rows[i].scenario->number))
            run(&session, &session.rows[i]);
    printf("%3s  %-66s  %-7s  %4s  %10s  %8s\n", "", "scenario", "backend", "runs", "worst ms",
           "bound ms");
    for (int i = 0; i < session.n; i++)
        if (wanted(&session, session.rows[i].scenario->number))
            print_row(&session, &session.rows[i]);
    (void)snprintf(name, sizeof name, "scenarios_%s_test", backend);
    return check_finish(name);
}

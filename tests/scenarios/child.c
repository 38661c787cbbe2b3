/* One scenario in a process of its own. */
#define _POSIX_C_SOURCE 200809L
#include "tests/scenarios/child.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/crash.h"

enum { HANG_MS_HOST = 10000, HANG_MS_NCCL = 20000, RACES_NCCL = 5, RACES = 200 };

static struct outcome outcome;
static pthread_mutex_t says_lock = PTHREAD_MUTEX_INITIALIZER; /* guards outcome.says */
static _Atomic int worst_us = -1;
static int pipe_to_parent;

int scenario_number(const char *name, int otherwise)
{
    const char *set = getenv(name);
    return set == NULL ? otherwise : atoi(set);
}

void scenario_says(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&says_lock);
    (void)vsnprintf(outcome.says, sizeof outcome.says, format, arguments);
    pthread_mutex_unlock(&says_lock);
    va_end(arguments);
}

static void tell(void)
{
    outcome.worst_us = atomic_load(&worst_us);
    pthread_mutex_lock(&says_lock);
    if (write(pipe_to_parent, &outcome, sizeof outcome) != (ssize_t)sizeof outcome)
        abort();
    pthread_mutex_unlock(&says_lock);
}

void scenario_leave(void)
{
    check_end();
    const int status = check_finish("scenario");
    outcome.left_at = check_now_ms();
    tell();
    exit(status);
}

static void fresh(const struct faults *faults)
{
    struct faults quick = *faults;
    quick.slow = false;
    check_begin("%s, %d ranks: a fresh communicator on the same devices", faults->backend,
                faults->size);
    faults_fresh(&quick);
    check_end();
}

int child_run(const struct child *child)
{
    const struct scenario *scenario = child->scenario;
    const bool nccl = strcmp(child->backend, "nccl") == 0;
    const struct faults faults = {
        .backend = child->backend,
        .size = child->size,
        .repetitions = scenario_number("TRIB_TEST_SCENARIO_RACES", nccl ? RACES_NCCL : RACES),
        .bound_ms = nccl ? HANG_MS_NCCL : HANG_MS_HOST,
        .slow = nccl,
        .call = scenario->call,
        .worst_us = &worst_us};
    crash_prints_stack();
    pipe_to_parent = child->pipe;
    for (outcome.runs = 0; outcome.runs < child->runs; outcome.runs++)
        scenario->body(&faults);
    fresh(&faults);
    tell();
    return check_finish("scenario");
}

/* The vocabulary of the C tests. */
#define _POSIX_C_SOURCE 200809L
#include "tests/check.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SHOWN_PER_CASE = 8 };

static char case_name[256];
static _Atomic int case_failures, failures;
static double case_start;
static int passed, failed, skipped;
static int slice, slices, cases; /* slices 0: all */
static bool left_out;

/* TRIB_TEST_VERBOSE in the environment: a line for each case. */
static bool verbose(void)
{
    return getenv("TRIB_TEST_VERBOSE") != NULL;
}

void check_begin(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(case_name, sizeof case_name, format, arguments);
    va_end(arguments);
    atomic_store(&case_failures, 0);
    case_start = check_now_ms();
    if (slices != 0)
        left_out = cases % slices != slice - 1;
    cases++;
    if (verbose() && !left_out) {
        printf("  %s ...", case_name);
        fflush(stdout);
    }
}

bool check_slice(const char *text)
{
    char end;
    return sscanf(text, "%d/%d%c", &slice, &slices, &end) == 2 && slice >= 1 && slice <= slices;
}

bool check_left_out(void)
{
    return left_out;
}

enum check_part check_part(const char *name)
{
    const char *only = getenv("TRIB_TEST_PART");
    if (only == NULL)
        return CHECK_PART_USUAL;
    if (only[0] == '-')
        return strcmp(only + 1, name) == 0 ? CHECK_PART_LEFT_OUT : CHECK_PART_USUAL;
    return strcmp(only, name) == 0 ? CHECK_PART_NAMED : CHECK_PART_LEFT_OUT;
}

void check_end(void)
{
    if (left_out) {
        left_out = false;
        return;
    }
    if (atomic_load(&case_failures) == 0)
        passed++;
    else
        failed++;
    if (verbose())
        printf(" %s, %.1f ms\n", atomic_load(&case_failures) == 0 ? "passed" : "FAILED",
               check_now_ms() - case_start);
}

bool check_failed(void)
{
    return atomic_load(&case_failures) != 0;
}

int check_failures(void)
{
    return atomic_load(&failures);
}

void check_skip(const char *format, ...)
{
    va_list arguments;
    printf("  skipped: ");
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    skipped++;
}

int check_finish(const char *name)
{
    if (slices != 0)
        printf("slice %d/%d: %d of %d cases\n", slice, slices, passed + failed, cases);
    printf("%s: %d passed, %d failed, %d skipped\n", name, passed, failed, skipped);
    fflush(stdout);
    if (failed > 0)
        return EXIT_FAILURE;
    return passed == 0 ? CHECK_EXIT_SKIP : EXIT_SUCCESS;
}

bool check_that(bool good, const char *file, int line, const char *format, ...)
{
    if (good || left_out)
        return good;
    atomic_fetch_add(&failures, 1);
    if (atomic_fetch_add(&case_failures, 1) < SHOWN_PER_CASE) {
        char text[1024];
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        printf("%s:%d: [%s] failed: %s\n", file, line, case_name, text);
        fflush(stdout);
    }
    return false;
}

bool check_status(trib_status found, trib_status expected, const char *file, int line,
                  const char *call)
{
    return check_that(found == expected, file, line, "%s is %s, expected %s; detail: %s", call,
                      trib_status_name(found), trib_status_name(expected), trib_last_detail());
}

bool check_detail(const char *words, const char *file, int line)
{
    return check_that(strstr(trib_last_detail(), words) != NULL, file, line,
                      "the detail \"%s\" does not say \"%s\"", trib_last_detail(), words);
}

struct rank_start {
    pthread_t thread;
    int rank, size;
    void (*body)(int rank, int size, void *argument);
    void *argument;
};

static void *rank_main(void *argument)
{
    struct rank_start *start = argument;
    start->body(start->rank, start->size, start->argument);
    return NULL;
}

void check_ranks(int size, void (*body)(int rank, int size, void *argument), void *argument)
{
    struct rank_start *starts = calloc((size_t)size, sizeof *starts);
    if (starts == NULL)
        abort();
    for (int rank = 0; rank < size; rank++) {
        starts[rank] =
            (struct rank_start){.rank = rank, .size = size, .body = body, .argument = argument};
        if (pthread_create(&starts[rank].thread, NULL, rank_main, &starts[rank]) != 0)
            abort();
    }
    for (int rank = 0; rank < size; rank++)
        pthread_join(starts[rank].thread, NULL);
    free(starts);
}

void check_sleep_ms(int ms)
{
    struct timespec time = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&time, NULL);
}

double check_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void check_sort(double *ms, int n)
{
    qsort(ms, (size_t)n, sizeof *ms, by_value);
}

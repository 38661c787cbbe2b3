/* The vocabulary of the C tests. Ranks are threads, so every check may be made from any thread.
 *
 * A program is a series of cases: check_begin, checks, check_end; at last `return check_finish()`.
 * A case passes if none of its checks failed.
 *
 * A program that may be made in slices goes through every case in order, for what it draws by
 * chance must be the same in all slices, but makes no call in one that is left out: CHECK_OK and
 * CHECK_STATUS do not make theirs, other checks count for nothing. */
#ifndef TRI_TESTS_CHECK_H
#define TRI_TESTS_CHECK_H

#include <stdbool.h>

#include "tributary.h"

/* Is the program one of the address or thread sanitizer, under which threads and processes that wait for each other
 * take far longer? */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { CHECK_SANITIZED = 1 };
#else
enum { CHECK_SANITIZED = 0 };
#endif

/* Exit status by which ctest knows that a program had nothing that it could run here. */
enum { CHECK_EXIT_SKIP = 77 };

void check_begin(const char *format, ...) __attribute__((format(printf, 1, 2)));
void check_end(void);
/* Has a check of the case that has begun failed? */
bool check_failed(void);
/* Checks that have failed so far, in all cases. */
int check_failures(void);
/* "I/N", 1 <= I <= N: only cases I, I + N, I + 2N ... from now on. False if it is not that. */
bool check_slice(const char *text);
/* The case that has begun is of another slice. */
bool check_left_out(void);
/* TRIB_TEST_PART in the environment: NAME, for this part of a suite alone, or -NAME, for the others. */
enum check_part { CHECK_PART_USUAL, CHECK_PART_NAMED, CHECK_PART_LEFT_OUT };
enum check_part check_part(const char *name);
/* Count one case as skipped, and say why. */
void check_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Print "NAME: N passed, N failed, N skipped", before it "slice I/N: N of N cases" of a slice; the
 * exit status. */
int check_finish(const char *name);

/* Record a failure of the current case. Returns `good`. */
bool check_that(bool good, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
bool check_status(trib_status found, trib_status expected, const char *file, int line,
                  const char *call);
/* The thread's last detail contains `words`. */
bool check_detail(const char *words, const char *file, int line);

/* A macro's value need not be used, and that of an operator must. */
static inline bool check_said(bool good)
{
    return good;
}

#define CHECK(condition) check_that((condition), __FILE__, __LINE__, "%s", #condition)
#define CHECK_MSG(condition, ...) check_that((condition), __FILE__, __LINE__, __VA_ARGS__)
#define CHECK_OK(call) CHECK_STATUS(call, TRIB_OK)
#define CHECK_STATUS(call, expected)                                                               \
    check_said(check_left_out() || check_status((call), (expected), __FILE__, __LINE__, #call))
#define CHECK_DETAIL(words) check_detail((words), __FILE__, __LINE__)

/* Run `body(rank, size, argument)` on `size` threads and wait for all of them. */
void check_ranks(int size, void (*body)(int rank, int size, void *argument), void *argument);

/* Sleep. For tests of waiting only, never to decide a race. */
void check_sleep_ms(int ms);

/* Milliseconds of a clock that never goes back. */
double check_now_ms(void);
/* Into ascending order. */
void check_sort(double *ms, int n);

#endif

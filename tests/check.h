/* The vocabulary of the C tests. Ranks are threads, so every check may be made from any thread.
 *
 * A program is a series of cases: check_begin, checks, check_end; at last `return check_finish()`.
 * A case passes if none of its checks failed. */
#ifndef TRI_TESTS_CHECK_H
#define TRI_TESTS_CHECK_H

#include <stdbool.h>

#include "tributary.h"

/* Exit status by which ctest knows that a program had nothing that it could run here. */
enum { CHECK_EXIT_SKIP = 77 };

void check_begin(const char *format, ...) __attribute__((format(printf, 1, 2)));
void check_end(void);
/* Count one case as skipped, and say why. */
void check_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Print "NAME: N passed, N failed, N skipped"; the exit status. */
int check_finish(const char *name);

/* Record a failure of the current case. Returns `good`. */
bool check_that(bool good, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
bool check_status(trib_status found, trib_status expected, const char *file, int line,
                  const char *call);
/* The thread's last detail contains `words`. */
bool check_detail(const char *words, const char *file, int line);

#define CHECK(condition) check_that((condition), __FILE__, __LINE__, "%s", #condition)
#define CHECK_MSG(condition, ...) check_that((condition), __FILE__, __LINE__, __VA_ARGS__)
#define CHECK_OK(call) check_status((call), TRIB_OK, __FILE__, __LINE__, #call)
#define CHECK_STATUS(call, expected) check_status((call), (expected), __FILE__, __LINE__, #call)
#define CHECK_DETAIL(words) check_detail((words), __FILE__, __LINE__)

/* Run `body(rank, size, argument)` on `size` threads and wait for all of them. */
void check_ranks(int size, void (*body)(int rank, int size, void *argument), void *argument);

/* Sleep. For tests of waiting only, never to make a race come out right. */
void check_sleep_ms(int ms);

/* Milliseconds of a clock that never goes back. */
double check_now_ms(void);

#endif

/* The work of the fake's streams that is not NCCL's: in order, and behind what another stream has yet to
 * do. Only what waits for something is ever left here: all else runs when it is queued. */
#ifndef TRI_TESTS_NCCL_FAKE_WORK_H
#define TRI_TESTS_NCCL_FAKE_WORK_H

#include <stdbool.h>
#include <stddef.h>

/* How a work goes on. Both are called under fake_lock. */
struct fake_work_kind {
    bool (*step)(void *argument); /* tried again and again; true: it has ended */
    /* Does it use some of these bytes? NULL: none that can be unmapped. */
    bool (*uses)(const void *argument, const void *begin, size_t bytes);
};

/* The queue of one stream. Zeroes before its first work; lives for ever. */
struct fake_line {
    struct fake_work *first, *last;
    long queued, ended;     /* works, ever */
    struct fake_line *next; /* of all that had work */
    bool listed;
};

/* All under fake_lock. Queue a copy of `argument`; then try all lines. */
void fake_line_add(struct fake_line *line, const struct fake_work_kind *kind, const void *argument,
                   size_t bytes);
void fake_line_run(struct fake_line *line, void (*run)(void *argument), const void *argument,
                   size_t bytes);
/* Wait for the first `until` works of `other`. */
void fake_line_await(struct fake_line *line, const struct fake_line *other, long until);
/* Try all lines until none goes on by itself. */
void fake_progress(void);
/* Some work that has not ended uses some of these bytes. */
bool fake_in_use(const void *begin, size_t bytes);

#endif

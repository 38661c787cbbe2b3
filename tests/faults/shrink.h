/* Ranks are lost, and the others go on with a communicator of their own: what those tests share. */
#ifndef TRI_TESTS_FAULTS_SHRINK_H
#define TRI_TESTS_FAULTS_SHRINK_H

#include "tests/faults/abort.h"

enum { SHRINKING_MS = 20000 };

/* The ranks of `old` that are not excluded become `made`, one thread each. */
struct shrinking {
    const struct team *old;
    struct team made;
    int32_t excluded[TEAM_MAX], n;
    uint32_t timeout_ms;
    trib_status expected;
    const char *detail; /* NULL: any */
};

/* Excludes `rank`; -1: nobody. */
struct shrinking shrinking_without(const struct team *old, int32_t rank);
/* On all ranks of `made`: all of them have a communicator, or what is expected. */
bool shrinking_run(struct shrinking *shrinking);
/* On the one that is `index` of `made`, for check_ranks. */
void shrinking_rank(int index, int size, void *shrinking);
bool shrinking_complete(const struct team *team);

void shrink_rounds(const struct faults *faults); /* abort, shrink, work */
void shrink_races(const struct faults *faults);  /* an abort while ranks shrink */
void shrink_group(const struct faults *faults);

#endif

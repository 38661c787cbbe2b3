/* Bad input: every mistake is refused before anything is queued, by a status and a detail that
 * names operation, argument, rank and device. */
#ifndef TRI_TESTS_API_BAD_INPUT_H
#define TRI_TESTS_API_BAD_INPUT_H

#include "tests/team.h"

enum { BAD_BYTES = 4096, BAD_FLOATS = BAD_BYTES / 4 };

/* Two allocations of exactly BAD_BYTES on the last rank's device, one on another rank's. */
struct bad {
    struct team team;
    int rank; /* the one that errs; the others make no calls meanwhile */
    trib_comm *comm;
    trib_stream stream;
    float *a, *b;
    float *foreign; /* NULL with one rank */
};

/* `found` is `expected`, and the detail says `operation`, "rank R" and `argument`. */
bool bad_refused(const struct bad *bad, trib_status found, trib_status expected,
                 const char *operation, const char *argument, const char *file, int line);

#define REFUSED(call, expected, operation, argument)                                               \
    bad_refused(bad, (call), (expected), (operation), (argument), __FILE__, __LINE__)

void bad_collectives(const struct bad *bad); /* the arguments of collectives of one count */
void bad_vectors(const struct bad *bad);     /* allgatherv, alltoallv, send, recv */
void bad_lists(const struct bad *bad);       /* lists, weighted averages */
void bad_factors(const struct bad *bad);     /* the options of a call */
void bad_batches(const struct bad *bad);
void bad_creation(const char *backend);
void bad_configurations(const char *backend); /* what trib_options tell NCCL */
void bad_devices(const char *backend);
void bad_groups(const char *backend, int size);
void bad_together(const char *backend, int size); /* batches that end together */
void bad_matches(const char *backend, int size);  /* TRIB_MATCH */

#endif

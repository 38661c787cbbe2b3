/* A rank of a communicator over the backend "processes": a thread, with a device and a stream. */
#ifndef TRI_TESTS_PROCESSES_MEMBER_H
#define TRI_TESTS_PROCESSES_MEMBER_H

#include "tests/check.h"
#include "tests/processes/backend.h"

enum { MEMBER_DEADLINE_MS = CHECK_SANITIZED ? 180000 : 60000 }; /* of a case */

struct member {
    trib_comm *comm;
    trib_device *device;
    trib_stream stream;
    int rank, size;
};

/* The device and its stream; no communicator yet. Ranks of one process have different ordinals. */
bool member_prepare(struct member *member, int rank, int size, int ordinal);
/* The communicator of processes_id(which). */
bool member_join(struct member *member, int which, const trib_options *options);
/* Both. */
bool member_begin(struct member *member, int rank, int size, const trib_options *options);
void member_end(struct member *member);

/* Queue an allreduce of one float; all ranks must pass the same. */
void member_call(const struct member *member, float *data);
/* Wait for the stream; the communicator must be usable. */
void member_wait(const struct member *member);
/* Has all that is queued on the stream ended? */
bool member_is_done(const struct member *member);
/* The same within `ms`. */
bool member_ends(const struct member *member, int ms);
/* Does the communicator end by a failure, here or of a peer that tells so, within `ms`? */
bool member_fails(const struct member *member, int ms);

#endif

/* Symmetric memory of the backend "processes": each rank's is a memfd, which the others map. */
#ifndef TRI_TESTS_PROCESSES_SYMMETRIC_H
#define TRI_TESTS_PROCESSES_SYMMETRIC_H

#include "tests/processes/transport.h"

extern const struct tri_symmetric_ops processes_symmetric;

/* An allreduce of so many elements and more is served in it. */
enum { SYMMETRIC_SERVED = 600 };

/* The transport ends. */
void processes_symmetric_end(struct tri_transport *self);

/* What a rank of this process does next in the step is a failure, or its end by SIGKILL. */
enum symmetric_step {
    SYMMETRIC_WELL,
    SYMMETRIC_ALLOC,
    SYMMETRIC_MAP,
    SYMMETRIC_TAKE,
    SYMMETRIC_BEGIN
};
void symmetric_set_fault(enum symmetric_step step, bool is_killed);

/* From now on the backend wants this much for itself, once a communicator; what it has, it has in common with
 * all ranks. */
void symmetric_want(size_t bytes);
/* It has got that. */
bool symmetric_taken(const trib_comm *comm);
/* How many allreduces of variant SYMMETRIC this process has made, all of whose buffers lie in such memory. */
int symmetric_calls(void);
/* The call is made. */
void symmetric_note(const struct tri_call *call);
/* How many mappings this process has. */
int symmetric_mappings(void);

#endif

/* How the ranks of the backend "processes" share memory: each has a memfd, which the others map.
 * Until share_begin they do not. */
#ifndef TRI_TESTS_PROCESSES_SHARE_H
#define TRI_TESTS_PROCESSES_SHARE_H

#include <stdatomic.h>
#include <stdint.h>

#include "tests/processes/backend.h"

enum share_step { SHARE_OFFER, SHARE_ALLOCATE, SHARE_MAP, SHARE_TRY, SHARE_USE, SHARE_STEPS };
enum share_fault {
    SHARE_WELL,
    SHARE_FAILS,
    SHARE_HANGS,     /* until the communicator has ended here */
    SHARE_IS_KILLED, /* the process is, in the middle of the step */
};

/* The names of the steps. */
extern const char *const share_names[SHARE_STEPS];

/* From now on, here and in the processes that are run next, communicators of up to `max_ranks` do. */
void share_begin(int32_t max_ranks);
/* What becomes of this process in that step from now on; SHARE_USE cannot fail. */
void share_set_fault(enum share_step step, enum share_fault fault);

/* How often this process has begun that step, and how often it has dropped what it had. */
int share_count(enum share_step step);
int share_dropped(void);
/* The handle of the communicator whose step hangs here; waits for it. */
trib_abort *share_await_hanging(void);

/* The memory of `rank`, in which each rank has one word for the test: [0 .. size). NULL: not shared. */
_Atomic uint32_t *share_words(const trib_comm *comm, int32_t rank);
/* How much memory each rank has then. */
uint64_t share_bytes(int32_t size);
/* How many mappings this process has. */
int share_mappings(void);

#endif

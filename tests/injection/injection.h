/* Faults by counting: the n-th call of one rank to the backend fails, is late or is overtaken by an
 * abort; or its n-th allocation or thread start fails. Raising n until a run passes whole walks
 * every error path. The program has its own table of backends: host, with a place to inject at in
 * front of each member; and the linker puts the functions of memory.c in front of the C library's.
 *
 * Calls of one rank are counted: those of the threads that have entered as that rank, and of the
 * functions that they submit to a stream. So a number means the same place in every run, as far as
 * a rank's thread and its stream do not overtake each other. */
#ifndef TRI_TESTS_INJECTION_H
#define TRI_TESTS_INJECTION_H

#include <stdbool.h>

#include "tributary.h"

enum injection_mode {
    INJECT_NOTHING,
    INJECT_FAILURE,   /* the member returns an error */
    INJECT_DELAY,     /* of DELAY_MS, before the member */
    INJECT_ABORT,     /* of the rank's communicator, before the member */
    INJECT_NO_MEMORY, /* an allocation returns NULL */
    INJECT_NO_THREAD, /* pthread_create returns EAGAIN */
    INJECT_MODES
};
const char *injection_mode_name(enum injection_mode mode);

struct injection_fault {
    enum injection_mode mode;
    int rank;
    long n; /* from 1 */
};

/* Where a fault can be. */
struct injection_place {
    const char *name;
    trib_status status; /* that a failure returns; TRIB_OK: it cannot fail */
    bool ignored;       /* callers may: nothing depends on it, or it is asked again */
};

/* Count from 0 and inject the fault, once; until disarm, which no thread may overtake. */
void injection_arm(const struct injection_fault *fault);
void injection_disarm(void);
/* The place of the fault; NULL until it has been injected. */
const struct injection_place *injection_fired(void);
/* What it aborted; NULL: nothing. Once this says so, the abort has been raised. */
const trib_abort *injection_raised(void);

/* This thread is rank `rank`; its abort is of `target` (NULL: none yet). */
void injection_enter(int rank, trib_abort *target);
void injection_target(trib_abort *target);
void injection_leave(void);

/* For functions that run on a stream. */
struct injection_context {
    int rank; /* -1: none */
    trib_abort *target;
};
struct injection_context injection_context(void);
void injection_resume(struct injection_context context);

/* A call has come to `place`: inject the fault if it is this one's turn. TRIB_OK, or the failure,
 * with a detail. */
trib_status injection_reach(const struct injection_place *place);
/* The same for a question about `object`, which counts once if it is asked again and again. */
trib_status injection_poll(const struct injection_place *place, const void *object);
/* An allocation or a thread start: does it fail? */
bool injection_fails(enum injection_mode mode, const struct injection_place *place);

/* ---- backend.c: with `submit`, as host; or without, as nccl: calls work before they return */
void injection_backend(bool queued);

/* ---- memory.c: blocks of memory that have been allocated and not freed */
long injection_live_blocks(void);

#endif

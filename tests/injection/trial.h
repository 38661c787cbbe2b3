/* One run of a small program of all ranks with one fault, and what must hold after it. */
#ifndef TRI_TESTS_INJECTION_TRIAL_H
#define TRI_TESTS_INJECTION_TRIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/check.h"
#include "tests/injection/injection.h"

enum { RANKS_MAX = 3, ROWS = 12, ROW = 96, NOTES = 6 };

enum {
    PROGRAM_OPENS = 1u << 0, /* makes and destroys its communicators itself */
    PROGRAM_DRIVES = 1u << 1 /* one thread for all ranks: rank 0 */
};

struct rank;

struct program {
    const char *name;
    void (*run)(struct rank *rank); /* returns at the first call that fails */
    uint32_t flags;
    uint32_t options; /* flags of trib_options */
    const void *argument;
};

/* A call that did not succeed. */
struct note {
    const char *call;
    trib_status status;
    bool agreed; /* all ranks get what one gets */
    int number;  /* of the call, among the rank's */
    char detail[200];
};

struct trial {
    const struct program *program;
    int size;
    bool queued; /* as on nccl: see injection_backend */
    bool clean;  /* the first run, without a fault: what others compare with */
    struct injection_fault fault;
    trib_id id;
    struct rank {
        struct trial *trial;
        int rank, size;
        trib_device *device;
        trib_stream stream;
        trib_comm *comm;
        trib_abort *handle; /* of comm; the trial releases it */
        struct note notes[NOTES];
        int nnotes, calls;
        _Alignas(256) float data[ROWS][ROW];
    } ranks[RANKS_MAX];
};

/* The name of the place of the fault; "nothing" before it. */
const char *where(void);
/* Did the call succeed? Otherwise writes it down. */
bool went(struct rank *rank, trib_status status, const char *call);
#define WENT(rank, call) went(rank, call, #call)
/* The same for a call in which all ranks agree: see judge_agreed. */
bool went_together(struct rank *rank, trib_status status, const char *call);
#define WENT_TOGETHER(rank, call) went_together(rank, call, #call)
/* Wait for the rank's stream. True if all that was queued has succeeded. */
bool settled(struct rank *rank);
/* data[row][0 .. n) == value, value + step, ... */
bool found(const struct rank *rank, int row, size_t n, float value, float step);
/* Wait for the other ranks' programs to get here. Not after a fault. */
void together(void);
/* For PROGRAM_OPENS: rank->comm has been made, and is to be destroyed. */
bool opened(struct rank *rank);
bool closed(struct rank *rank);

/* One run of all ranks. Was the fault injected? Without one (INJECT_NOTHING) it is the first run of
 * this program, with which others compare. */
bool trial_run(const struct program *program, int size, bool queued,
               const struct injection_fault *fault);

/* From now on a run takes no longer than its bound, or the process ends and says where it was. */
void trial_watched(void);

#endif

/* Where the ranks of one communicator meet, in memory that their processes share.
 *
 * A process may be killed at any time, so nothing here is locked: ranks join by compare-and-swap,
 * and each then writes only what is its own, and counts up. Whoever waits looks again and again. A
 * place serves one communicator and is never used again. */
#ifndef TRI_TESTS_PROCESSES_PLACE_H
#define TRI_TESTS_PROCESSES_PLACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tests/processes/backend.h"

enum {
    PLACE_RANKS = 8,
    PLACE_PIECE = 32768, /* bytes of a collective at a time; whole elements */
    PLACE_MAIL = 16384,  /* bytes of a message at a time */
    PLACES = 256
};

/* What all ranks say the same of a collective, and a rank's factor. */
struct place_call {
    int32_t kind, dtype, op, peer, scaled;
    uint64_t bytes;
    double factor; /* one element of dtype */
};

/* What a rank writes and the others read. What has two elements is for odd and even numbers: a rank
 * may be one ahead of another that still reads, and is never two ahead. */
struct seat {
    pid_t pid; /* before the rank is ready, as the device */
    int32_t device;
    _Alignas(64) _Atomic uint64_t pieces; /* posted so far; the newest: */
    struct place_call calls[2];
    _Alignas(64) unsigned char data[2][PLACE_PIECE];
    _Atomic uint64_t splits; /* made so far */
    struct {
        int32_t color, key;
    } wishes[2];
    _Atomic uint64_t child; /* if no lower rank has the same color: its place; see backend.c */
};

/* From one rank to another: empty if equally much was sent and received. */
struct mail {
    _Alignas(64) _Atomic uint64_t sent; /* pieces; the sender's */
    _Alignas(64) _Atomic uint64_t received;
    uint64_t bytes;
    unsigned char data[PLACE_MAIL];
};

struct place {
    _Atomic int32_t size; /* 0: no rank has come */
    _Atomic uint32_t gate;
    struct seat seats[PLACE_RANKS];
    struct mail mail[PLACE_RANKS][PLACE_RANKS]; /* sender, receiver */
};

/* The number of a place that nobody has had, or -1; the place of a number, or NULL. */
int32_t place_take(void);
struct place *place_of(int32_t number);
/* Tells this run from others, in ids; 0: the process does not belong to one. */
uint64_t place_run(void);

/* A rank that joins. */
struct joining {
    const char *operation;
    int32_t rank, size, device;
    uint32_t timeout_ms;
    uint64_t deadline_ns;
    const uint32_t *stop; /* abort flag that ends the wait, or NULL */
};

/* Wait until all ranks have joined: all do, or this one has not. If `stop` ends the wait,
 * TRIB_ERR_ABORTED without a detail. */
trib_status place_join(struct place *place, const struct joining *self);
/* The same for all ranks at once, those of this process. */
void place_fill(struct place *place, const int32_t *devices, int32_t size);

/* Wait until `holds(context)`; false if *stop (may be NULL) is set, or the deadline (0: none) has
 * passed, before. */
bool place_wait(bool (*holds)(void *context), void *context, const uint32_t *stop,
                uint64_t deadline_ns);

#endif

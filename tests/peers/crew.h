/* Several processes whose ranks have channels to each other. The parent only starts them and waits;
 * it calls nothing of the library. Every wait is bounded: a child that hangs fails its case. */
#ifndef TRI_TESTS_PEERS_CREW_H
#define TRI_TESTS_PEERS_CREW_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "csrc/peers/peers.h"
#include "tests/check.h"
#include "tests/children.h"

enum { CREW_MAX = 6, CREW_EVENTS = 4096, CREW_BOUND_MS = 20000, CREW_MEETINGS = 64 };

/* In memory that all processes share. */
struct crew {
    int size; /* ranks */
    uint32_t flags;
    _Atomic int pids[CREW_MAX];
    _Atomic int published;
    struct tri_peer_address addresses[CREW_MAX];
    _Atomic int met[CREW_MEETINGS];
    _Atomic int doomed[CREW_MAX]; /* ends other than by returning from its body */
    _Atomic uint64_t word;        /* for the case */
};

enum crew_kind { CREW_MESSAGE, CREW_DEAD, CREW_LEFT, CREW_FD };

struct crew_event {
    enum crew_kind kind;
    int rank, type, fd;
    size_t length;
    uint64_t tag; /* CREW_MESSAGE: its first 8 bytes */
    bool intact;  /* CREW_MESSAGE: the rest is as crew_fill wrote it */
    double at_ms;
    char text[160];
};

/* A rank, in its process. */
struct member {
    struct crew *crew;
    int rank;
    struct tri_peers *peers;
    bool refuses_fds;
    int slow_ms; /* in the callback of a message */

    pthread_mutex_t lock; /* guards the rest, which the callbacks write */
    int n;
    struct crew_event events[CREW_EVENTS];
};

/* Run `body(member)` in `processes` processes, of which those below `size` are ranks; those in
 * `doomed` may end in any way. */
uint64_t crew_run(int size, int processes, uint32_t flags, void (*body)(struct member *member));

/* The body of a rank, in order. */
trib_status crew_listen(struct member *member, const char *id);
void crew_publish(struct member *member); /* and wait until all ranks have */
trib_status crew_connect(struct member *member, int timeout_ms);
void crew_open(struct member *member); /* all three; must succeed */
void crew_close(struct member *member);

/* Wait until `n` processes are at this meeting. Each number is used once. */
void crew_meet(struct crew *crew, int meeting, int n);
/* How many events of this kind from this rank (-1: any) there are; wait until there are `n`, and
 * return a copy of the n-th. */
int crew_count(struct member *member, enum crew_kind kind, int rank);
struct crew_event crew_await(struct member *member, enum crew_kind kind, int rank, int n);

/* A payload with a tag; length >= 8. */
void crew_fill(uint8_t *out, size_t length, uint64_t tag);

#endif

/* How the ranks of the backend "processes" share memory. */
#define _GNU_SOURCE
#include "tests/processes/share.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/core/communicator.h"
#include "tests/processes/transport.h"

enum { PAGE = 4096, TRY_MS = 5000 };

/* What a rank has between its offer and the end. */
struct shared {
    size_t bytes;                          /* of each rank's memory */
    _Atomic uint32_t *memory[PLACE_RANKS]; /* [0 .. size) is for `try`, what follows for the test */
    bool used;
};

const char *const share_names[SHARE_STEPS] = {"offer", "allocate", "map", "try", "use"};

/* Of this process. */
static enum share_fault faults[SHARE_STEPS];
static _Atomic int counts[SHARE_STEPS], dropped;
static _Atomic(trib_abort *) hanging;

void share_set_fault(enum share_step step, enum share_fault fault)
{
    faults[step] = fault;
}

int share_count(enum share_step step)
{
    return atomic_load(&counts[step]);
}

int share_dropped(void)
{
    return atomic_load(&dropped);
}

trib_abort *share_await_hanging(void)
{
    while (atomic_load(&hanging) == NULL)
        check_sleep_ms(1);
    return atomic_load(&hanging);
}

/* ---------------------------------------------------------------------------------------- faults */

static bool never(void *nothing)
{
    (void)nothing;
    return false;
}

static trib_status meet_fault(const struct tri_transport *self, enum share_step step)
{
    if (faults[step] == SHARE_FAILS)
        return tri_fail(TRIB_ERR_SYSTEM, "%s fails on demand", share_names[step]);
    if (faults[step] == SHARE_IS_KILLED)
        (void)kill(getpid(), SIGKILL);
    if (faults[step] == SHARE_HANGS) {
        atomic_store(&hanging, tri_abort_retain(self->state)); /* for ever: the process ends soon */
        return processes_wait(self, never, NULL);
    }
    return TRIB_OK;
}

/* ----------------------------------------------------------------------------------------- steps */

/* The size of everybody's memory is the largest of the offers. */
static size_t wanted(int32_t rank)
{
    return (size_t)(rank + 1) * PAGE;
}

uint64_t share_bytes(int32_t size)
{
    return wanted(size - 1);
}

static trib_status fail(const char *what)
{
    return tri_fail(TRIB_ERR_SYSTEM, "%s: %s", what, tri_error_text(errno).text);
}

static trib_status offer(struct tri_transport *self, struct tri_words *out)
{
    atomic_fetch_add(&counts[SHARE_OFFER], 1);
    CHECK(self->shared == NULL);
    TRI_TRY(meet_fault(self, SHARE_OFFER));
    self->shared = calloc(1, sizeof *self->shared);
    if (self->shared == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no memory to share");
    out->words[0] = (uint64_t)self->rank;
    out->words[7] = wanted(self->rank);
    return TRIB_OK;
}

static trib_status map_one(struct tri_transport *self, int32_t rank, int fd)
{
    void *data = mmap(NULL, self->shared->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        return fail("mmap");
    self->shared->memory[rank] = data;
    return TRIB_OK;
}

static trib_status export(struct tri_transport *self, int fd)
{
    return ftruncate(fd, (off_t)self->shared->bytes) == 0 ? map_one(self, self->rank, fd)
                                                          : fail("ftruncate");
}

static trib_status allocate(struct tri_transport *self, const struct tri_words *all, int *out_fd)
{
    atomic_fetch_add(&counts[SHARE_ALLOCATE], 1);
    for (int32_t rank = 0; rank < self->size; rank++) {
        CHECK(all[rank].words[0] == (uint64_t)rank && all[rank].words[7] == wanted(rank));
        if (all[rank].words[7] > self->shared->bytes)
            self->shared->bytes = all[rank].words[7];
    }
    TRI_TRY(meet_fault(self, SHARE_ALLOCATE));
    const int fd = memfd_create("processes_share", MFD_CLOEXEC);
    if (fd < 0)
        return fail("memfd_create");
    const trib_status status = export(self, fd);
    if (status == TRIB_OK)
        *out_fd = fd;
    else
        (void)close(fd);
    return status;
}

static trib_status map(struct tri_transport *self, const int *fds)
{
    atomic_fetch_add(&counts[SHARE_MAP], 1);
    TRI_TRY(meet_fault(self, SHARE_MAP));
    CHECK(fds[self->rank] == -1);
    for (int32_t rank = 0; rank < self->size; rank++)
        if (rank != self->rank)
            TRI_TRY(map_one(self, rank, fds[rank]));
    return TRIB_OK;
}

static bool all_written(void *context)
{
    const struct tri_transport *self = context;
    for (int32_t rank = 0; rank < self->size; rank++)
        if (atomic_load(&self->shared->memory[self->rank][rank]) != (uint32_t)rank + 1)
            return false;
    return true;
}

/* A fault is one of this rank alone: it comes behind what the others wait for. */
static trib_status try(struct tri_transport *self)
{
    atomic_fetch_add(&counts[SHARE_TRY], 1);
    for (int32_t rank = 0; rank < self->size; rank++)
        atomic_store(&self->shared->memory[rank][self->rank], (uint32_t)self->rank + 1);
    TRI_TRY(meet_fault(self, SHARE_TRY));
    if (place_wait(all_written, self, self->flag, tri_deadline_ns(TRY_MS)))
        return TRIB_OK;
    TRI_TRY(tri_abort_status(self->state));
    return tri_fail(TRIB_ERR_TIMEOUT, "what the others wrote has not come");
}

static void use(struct tri_transport *self)
{
    atomic_fetch_add(&counts[SHARE_USE], 1);
    (void)meet_fault(self, SHARE_USE);
    self->shared->used = true;
}

/* Also behind an offer that failed; and what is used is dropped with the transport. */
static void drop(struct tri_transport *self)
{
    struct shared *shared = self->shared;
    if (shared == NULL || !shared->used)
        atomic_fetch_add(&dropped, 1);
    for (int32_t rank = 0; shared != NULL && rank < self->size; rank++)
        if (shared->memory[rank] != NULL)
            (void)munmap(shared->memory[rank], shared->bytes);
    free(shared);
    self->shared = NULL;
}

static uint64_t peer_bytes(const struct tri_transport *self)
{
    return self->shared != NULL && self->shared->used ? self->shared->bytes : 0;
}

static struct tri_share_ops ops = {
    .offer = offer, .allocate = allocate, .map = map, .try = try, .use = use, .drop = drop};

void share_begin(int32_t max_ranks)
{
    ops.max_ranks = max_ranks;
    processes_share(&ops, peer_bytes);
}

/* ----------------------------------------------------------------------------- what a test sees */

_Atomic uint32_t *share_words(const trib_comm *comm, int32_t rank)
{
    const struct tri_transport *transport = comm->transport;
    if (transport->shared == NULL || !transport->shared->used)
        return NULL;
    return transport->shared->memory[rank] + transport->size;
}

int share_mappings(void)
{
    char line[512];
    int n = 0;
    FILE *file = fopen("/proc/self/maps", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        n += strstr(line, "processes_share") != NULL;
    if (file != NULL)
        (void)fclose(file);
    return n;
}

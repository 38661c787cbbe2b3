/* Symmetric memory of the backend "processes". */
#define _GNU_SOURCE
#include "tests/processes/symmetric.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "csrc/base/status.h"
#include "csrc/core/communicator.h"
#include "tests/processes/backend.h"

static enum symmetric_step faulty;
static bool kills;
static size_t wanted;
static _Atomic int mappings, noted;

void symmetric_set_fault(enum symmetric_step step, bool is_killed)
{
    faulty = step;
    kills = is_killed;
}

void symmetric_want(size_t bytes)
{
    wanted = bytes;
}

int symmetric_mappings(void)
{
    return mappings;
}

int symmetric_calls(void)
{
    return noted;
}

void symmetric_note(const struct tri_call *call)
{
    struct tri_symmetric *list = *processes_symmetric.list(call->transport);
    const size_t bytes = call->count * trib_dtype_size(call->dtype);
    if (call->kind == TRI_ALLREDUCE && call->variant == TRIB_VARIANT_SYMMETRIC &&
        tri_symmetric_find(list, call->send, bytes) != NULL &&
        tri_symmetric_find(list, call->recv, bytes) != NULL)
        atomic_fetch_add(&noted, 1);
}

static trib_status meet_fault(enum symmetric_step step)
{
    if (faulty != step)
        return TRIB_OK;
    if (kills)
        (void)kill(getpid(), SIGKILL);
    faulty = SYMMETRIC_WELL;
    return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "step %d fails on demand", (int)step);
}

static trib_status map_one(struct tri_symmetric *memory, int32_t rank, int fd)
{
    void *data = mmap(NULL, memory->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        return tri_fail(TRIB_ERR_SYSTEM, "mmap: %s", tri_error_text(errno).text);
    atomic_fetch_add(&mappings, 1);
    memory->of[rank].here = data;
    memory->of[rank].handle = 1;
    return TRIB_OK;
}

static const char *refuses(struct tri_transport *self)
{
    (void)self;
    return NULL;
}

static size_t near_from(const struct tri_transport *self)
{
    (void)self;
    return 0;
}

static bool serves(struct tri_transport *self, size_t count, trib_dtype dtype)
{
    (void)self, (void)dtype;
    return count >= SYMMETRIC_SERVED;
}

static size_t wants(struct tri_transport *self)
{
    return self->asked ? 0 : wanted;
}

static trib_status begin_wanted(struct tri_transport *self)
{
    CHECK(wants(self) != 0);
    return meet_fault(SYMMETRIC_BEGIN);
}

static trib_status alloc(struct tri_transport *self, struct tri_symmetric *memory, int *out_fd)
{
    *out_fd = -1;
    TRI_TRY(meet_fault(SYMMETRIC_ALLOC));
    const int fd = memfd_create("processes_symmetric", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)memory->bytes) != 0)
        return tri_fail(TRIB_ERR_SYSTEM, "memfd: %s", tri_error_text(errno).text);
    const trib_status status = map_one(memory, self->rank, fd);
    if (status == TRIB_OK && self->here < self->size)
        *out_fd = fd;
    else
        (void)close(fd);
    return status;
}

static trib_status map(struct tri_transport *self, struct tri_symmetric *memory, const int *fds)
{
    TRI_TRY(meet_fault(SYMMETRIC_MAP));
    CHECK(fds[self->rank] == -1);
    for (int32_t rank = 0; rank < self->size; rank++)
        if (rank != self->rank)
            TRI_TRY(map_one(memory, rank, fds[rank]));
    return TRIB_OK;
}

/* Where each rank has the others' is known by now. */
static trib_status try_wanted(struct tri_transport *self, struct tri_symmetric *memory)
{
    CHECK(memory->bytes == wanted);
    for (int32_t rank = 0; rank < self->size; rank++)
        CHECK(memory->of[rank].here != NULL && memory->of[rank].there != 0);
    return meet_fault(SYMMETRIC_TAKE);
}

/* What another rank of this process has mapped, it unmaps. */
static void release(struct tri_transport *self, struct tri_symmetric *memory)
{
    for (int32_t rank = 0; rank < self->size; rank++)
        if (memory->of[rank].handle != 0) {
            CHECK(munmap(memory->of[rank].here, memory->bytes) == 0);
            atomic_fetch_sub(&mappings, 1);
        }
}

static void settle_wanted(struct tri_transport *self, struct tri_symmetric *memory, bool by_all)
{
    self->asked = true;
    if (by_all) {
        self->taken = memory;
        return;
    }
    if (memory != NULL)
        release(self, memory);
    free(memory);
}

static struct tri_symmetric **list(struct tri_transport *self)
{
    return &self->symmetric;
}

bool symmetric_taken(const trib_comm *comm)
{
    return comm->transport->taken != NULL;
}

void processes_symmetric_end(struct tri_transport *self)
{
    if (self->taken != NULL)
        release(self, self->taken);
    free(self->taken);
    struct tri_symmetric *memory;
    while ((memory = tri_symmetric_pop(&self->symmetric)) != NULL) {
        release(self, memory);
        free(memory);
    }
}

const struct tri_symmetric_ops processes_symmetric = {.refuses = refuses,
                                                      .near_from = near_from,
                                                      .serves = serves,
                                                      .wants = wants,
                                                      .begin_wanted = begin_wanted,
                                                      .alloc = alloc,
                                                      .map = map,
                                                      .try_wanted = try_wanted,
                                                      .settle_wanted = settle_wanted,
                                                      .release = release,
                                                      .list = list};

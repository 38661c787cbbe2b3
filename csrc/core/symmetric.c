/* Symmetric memory: the ranks take the steps of struct tri_symmetric_ops one by one (steps.h). Each rank
 * says with a step where its memory is, or where it has mapped that of the others. */
#include "csrc/core/symmetric.h"

#include <stdlib.h>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/core/all_ranks.h"
#include "csrc/core/issue.h"
#include "csrc/core/operation.h"
#include "csrc/core/remote.h"
#include "csrc/core/steps.h"
#include "csrc/core/validate.h"

enum { WORDS = sizeof(struct tri_words) / sizeof(uint64_t) }; /* that a rank says at once */
/* Words of a first vote, behind the argument and the operation: with TRIB_WINDOWS? and spare memory. */
enum { WINDOWS = 2, BYTES, NUMBER };

/* The part of one rank in a call of all ranks. */
struct request {
    struct trib_comm *comm;
    const struct tri_symmetric_ops *ops;
    struct tri_steps steps;
    int operation;
    void **out; /* of an allocation */
    size_t bytes;
    const void *data;             /* to import, or to free */
    trib_stream on;               /* to import: when `data` can be read */
    struct tri_symmetric *memory; /* that is made, or to free; NULL: none */
    bool freed;                   /* by which the call has succeeded, whatever comes then */
    bool elsewhere;               /* ranks are in other processes, each in its own */
};

/* ------------------------------------------------------------------------------------ agreement */

/* Every rank compares with rank 0, so that all find the same. */
static trib_status compare(const struct request *request, const char *what)
{
    const struct trib_comm *comm = request->comm;
    const uint64_t *first = request->steps.votes[0].said.words;
    for (int32_t rank = 1; rank < comm->size; rank++) {
        const uint64_t *other = request->steps.votes[rank].said.words;
        if (other[1] != first[1])
            return tri_fail_call(comm, request->operation, TRIB_ERR_MISMATCH,
                                 "rank %d makes another call than rank 0; nothing was done",
                                 (int)rank);
        if (other[WINDOWS] != first[WINDOWS])
            return tri_fail_call(comm, request->operation, TRIB_ERR_MISMATCH,
                                 "rank %d was created %s TRIB_WINDOWS, and rank 0 %s; all pass the "
                                 "same options; nothing was done",
                                 (int)rank, other[WINDOWS] != 0 ? "with" : "without",
                                 other[WINDOWS] != 0 ? "without" : "with");
        if (other[0] != first[0])
            return tri_fail_call(comm, request->operation, TRIB_ERR_MISMATCH,
                                 "rank %d passes %s %llu, and rank 0 %llu; nothing was done",
                                 (int)rank, what, (unsigned long long)other[0],
                                 (unsigned long long)first[0]);
    }
    return TRIB_OK;
}

/* Do all ranks make this call with the same `argument`, which `what` names, and is it valid on all? `own` is
 * what this rank finds of its own. */
static trib_status agree(struct request *request, trib_status own, uint64_t argument,
                         const char *what)
{
    struct tri_steps *steps = &request->steps;
    steps->said.words[0] = argument;
    steps->said.words[1] = (uint64_t)request->operation;
    steps->said.words[WINDOWS] = request->comm->config.windows;
    const trib_status status = tri_steps_vote(steps, own);
    if (status == TRIB_OK)
        return compare(request, what);
    if (own != TRIB_OK || steps->failed < 0)
        return status;
    return tri_fail_call(request->comm, request->operation, TRIB_ERR_MISMATCH,
                         "rank %d rejected its arguments (%s): all ranks must make the same call; "
                         "nothing was done",
                         (int)steps->failed, trib_status_name(status));
}

/* --------------------------------------------------------------------------------------- alloc */

static trib_status check_not_batched(const struct request *request)
{
    if (!request->comm->batch.open)
        return TRIB_OK;
    return tri_fail_call(request->comm, request->operation, TRIB_ERR_INVALID_USAGE,
                         "inside a batch; call trib_batch_end first");
}

static trib_status check_import(const struct request *request)
{
    const struct trib_comm *comm = request->comm;
    const struct tri_buffer buffer = {
        {"data", TRI_NO_INDEX}, request->data, 1, request->bytes, TRIB_U8};
    size_t bytes;
    if (request->operation != TRI_SYMMETRIC_IMPORT)
        return TRIB_OK;
    TRI_TRY(tri_check_buffer(comm, request->operation, &buffer, &bytes));
    return tri_check_stream(comm, request->operation, request->on);
}

/* Are ranks in other processes? */
static bool is_elsewhere(const struct trib_comm *comm)
{
    return comm->backend->transport->here(comm->transport) < comm->size;
}

/* The same on all ranks. NULL: there is such memory. */
static const char *refusal(const struct trib_comm *comm)
{
    const struct tri_symmetric_ops *ops = comm->backend->transport->symmetric;
    if (ops == NULL)
        return "this backend has no such memory";
    if (is_elsewhere(comm) && (ops->map == NULL || comm->remote == NULL || comm->size > WORDS ||
                               !tri_remote_is_one_host(comm->remote)))
        return "its ranks are in several processes, and not each in one of its own, on one host, "
               "with a side channel";
    return ops->refuses(comm->transport);
}

static trib_status check(const struct request *request)
{
    const struct trib_comm *comm = request->comm;
    TRI_TRY(check_not_batched(request));
    if (request->out == NULL)
        return tri_fail_call(comm, request->operation, TRIB_ERR_INVALID_ARGUMENT,
                             "`out` is NULL; expected a place");
    if (request->bytes == 0 || request->bytes > PTRDIFF_MAX)
        return tri_fail_call(comm, request->operation, TRIB_ERR_INVALID_ARGUMENT,
                             "`bytes` is %zu; expected 1 to %td", request->bytes, PTRDIFF_MAX);
    TRI_TRY(check_import(request));
    const char *why = refusal(comm);
    if (why == NULL)
        return TRIB_OK;
    return tri_fail_call(comm, request->operation, TRIB_ERR_UNSUPPORTED, "%s", why);
}

/* This rank's, and what it exports is on its way at once: one that cannot send says so with this step. */
static trib_status allocate(struct request *request)
{
    struct trib_comm *comm = request->comm;
    int fd = -1;
    TRI_TRY(request->ops->alloc(comm->transport, request->memory, &fd));
    request->steps.said.words[0] = (uint64_t)(uintptr_t)request->memory->of[comm->rank].here;
    return tri_steps_send_fd(&request->steps, fd);
}

/* All ranks are in this process: each knows the others' by its address. */
static void find_here(struct request *request)
{
    struct tri_symmetric *memory = request->memory;
    for (int32_t rank = 0; rank < memory->size; rank++) {
        memory->of[rank].here =
            (char *)(uintptr_t)request->steps.votes[rank].said.words[0]; /* NOLINT */
        memory->of[rank].there = (uint64_t)(uintptr_t)memory->of[memory->rank].here;
    }
}

static trib_status map(struct request *request)
{
    struct tri_symmetric *memory = request->memory;
    trib_status status = tri_steps_take_fds(&request->steps);
    if (status == TRIB_OK)
        status = request->ops->map(request->comm->transport, memory, request->steps.fds);
    tri_steps_close_fds(&request->steps);
    for (int32_t rank = 0; rank < memory->size; rank++)
        request->steps.said.words[rank] = (uint64_t)(uintptr_t)memory->of[rank].here;
    return status;
}

static void find_there(struct request *request)
{
    struct tri_symmetric *memory = request->memory;
    for (int32_t rank = 0; rank < memory->size; rank++)
        memory->of[rank].there = request->steps.votes[rank].said.words[memory->rank];
}

static void release(struct request *request)
{
    if (request->memory == NULL)
        return;
    request->ops->release(request->comm->transport, request->memory);
    free(request->memory);
    request->memory = NULL;
}

/* request->memory, of `bytes` bytes on every rank; or nothing on any. */
static trib_status make(struct request *request, size_t bytes)
{
    struct trib_comm *comm = request->comm;
    request->memory = tri_symmetric_create(comm->rank, comm->size, bytes);
    trib_status status =
        request->memory == NULL
            ? tri_fail_call(comm, request->operation, TRIB_ERR_OUT_OF_MEMORY,
                            "no host memory to keep where that of %d ranks is", (int)comm->size)
            : allocate(request);
    status = tri_steps_vote(&request->steps, status);
    if (status == TRIB_OK && !request->elsewhere)
        find_here(request);
    if (status == TRIB_OK && request->elsewhere) {
        status = tri_steps_vote(&request->steps, map(request));
        if (status == TRIB_OK)
            find_there(request);
    }
    if (status != TRIB_OK)
        release(request);
    return status;
}

/* What the backend wants for itself, on all ranks or none. Descriptors come only after a vote: no rank sends any
 * before all accept them. */
static trib_status make_wanted(struct request *request)
{
    const struct tri_symmetric_ops *ops = request->ops;
    struct tri_transport *transport = request->comm->transport;
    TRI_TRY(tri_steps_vote(&request->steps, ops->begin_wanted(transport)));
    TRI_TRY(make(request, ops->wants(transport)));
    return tri_steps_vote(&request->steps, ops->try_wanted(transport, request->memory));
}

/* Without it the communicator goes on, unless it has ended. */
static trib_status bring(struct request *request)
{
    const struct trib_comm *comm = request->comm;
    const trib_status status = make_wanted(request);
    request->ops->settle_wanted(comm->transport, request->memory, status == TRIB_OK);
    request->memory = NULL;
    if (status == TRIB_OK || request->steps.failed < 0)
        return status;
    tri_log(TRIB_LOG_INFO,
            "trib_%s on rank %d: the library of backend \"%s\" serves large calls: %s",
            tri_operations[request->operation].name, (int)comm->rank, comm->backend->name,
            tri_detail());
    return TRIB_OK;
}

static trib_status open_window(const struct request *request)
{
    const struct tri_transport_ops *ops = request->comm->backend->transport;
    return ops->open_window == NULL ? TRIB_OK
                                    : ops->open_window(request->comm->transport, request->memory);
}

/* All ranks have their memory, or none: one that fails now ends the communicator. */
static trib_status end_if_failed(const struct request *request, trib_status status)
{
    if (status != TRIB_OK)
        tri_making_fail(request->steps.making, status);
    return status;
}

static trib_status fill(const struct request *request)
{
    struct trib_comm *comm = request->comm;
    if (request->operation != TRI_SYMMETRIC_IMPORT)
        return TRIB_OK;
    return end_if_failed(
        request, comm->backend->device->copy(comm->device, request->memory->of[comm->rank].here,
                                             request->data, request->bytes, request->on));
}

static trib_status make_listed(struct request *request)
{
    TRI_TRY(make(request, request->bytes));
    request->memory->number = request->comm->symmetric_made++;
    tri_symmetric_add(request->ops->list(request->comm->transport), request->memory);
    return TRIB_OK;
}

static trib_status make_both(struct request *request)
{
    TRI_TRY(agree(request, check(request), request->bytes, "`bytes`"));
    TRI_TRY(make_listed(request));
    TRI_TRY(open_window(request));
    return fill(request);
}

/* ------------------------------------------------------------------------------------------ free */

static trib_status find_to_free(struct request *request)
{
    const struct trib_comm *comm = request->comm;
    TRI_TRY(check_not_batched(request));
    if (request->ops != NULL)
        request->memory =
            tri_symmetric_find(*request->ops->list(comm->transport), request->data, 1);
    if (request->memory != NULL && !request->memory->own &&
        request->memory->of[comm->rank].here == request->data)
        return TRIB_OK;
    request->memory = NULL;
    return tri_fail_call(comm, request->operation, TRIB_ERR_INVALID_ARGUMENT,
                         "`data` %p is not the start of symmetric memory of this communicator; "
                         "pass a pointer from trib_symmetric_alloc, once",
                         request->data);
}

static trib_status close_window(const struct request *request)
{
    const struct tri_transport_ops *ops = request->comm->backend->transport;
    return ops->close_window == NULL
               ? TRIB_OK
               : end_if_failed(request,
                               ops->close_window(request->comm->transport, request->memory));
}

/* Behind the vote nobody uses it. */
static trib_status free_of_all(struct request *request)
{
    const trib_status found = find_to_free(request);
    const uint64_t number = found == TRIB_OK ? request->memory->number : 0;
    TRI_TRY(agree(request, found, number, "allocation"));
    const trib_status closed = close_window(request);
    tri_symmetric_remove(request->ops->list(request->comm->transport), request->memory);
    release(request);
    request->freed = true;
    return closed;
}

/* ---------------------------------------------------------------------------- calls of all ranks */

/* Registered, so that the backend's background work frees nothing meanwhile. */
static trib_status take_steps(struct request *request, trib_status (*steps)(struct request *))
{
    TRI_TRY(tri_issue_register(request->comm));
    const trib_status status = steps(request);
    tri_comm_count_peers(request->comm);
    const trib_status end = tri_issue_unregister(request->comm);
    return status != TRIB_OK || request->freed ? status : end;
}

static trib_status run_making(struct request *request, const struct tri_making *making,
                              trib_status (*steps)(struct request *))
{
    trib_status status = tri_steps_begin(&request->steps, making);
    if (status == TRIB_OK)
        status = take_steps(request, steps);
    else
        tri_making_fail(making, status);
    tri_steps_end(&request->steps);
    return status;
}

static trib_status run(struct request *request, trib_stream stream,
                       trib_status (*steps)(struct request *))
{
    struct trib_comm *comm = request->comm;
    const struct tri_making making = {.comm = comm,
                                      .operation = request->operation,
                                      .deadline_ns = tri_deadline_ns(comm->timeout_ms),
                                      .stream = stream};
    return run_making(request, &making, steps);
}

static trib_status run_alloc(void *request, trib_stream stream)
{
    return run(request, stream, make_both);
}

static trib_status run_free(void *request, trib_stream stream)
{
    return run(request, stream, free_of_all);
}

static struct request request_of(struct trib_comm *comm, int operation)
{
    return (struct request){.comm = comm,
                            .ops = comm->backend->transport->symmetric,
                            .operation = operation,
                            .elsewhere = is_elsewhere(comm)};
}

static trib_status alloc(struct request *request)
{
    struct trib_comm *comm = request->comm;
    TRI_TRY(tri_all_ranks_run(comm, request->operation, run_alloc, request));
    *request->out = request->memory->of[comm->rank].here;
    return TRIB_OK;
}

trib_status tri_symmetric_alloc(void **out, struct trib_comm *comm, size_t bytes)
{
    struct request request = request_of(comm, TRI_SYMMETRIC_ALLOC);
    request.out = out;
    request.bytes = bytes;
    return alloc(&request);
}

trib_status tri_symmetric_import(void **out, struct trib_comm *comm, const void *data, size_t bytes,
                                 trib_stream stream)
{
    struct request request = request_of(comm, TRI_SYMMETRIC_IMPORT);
    request.out = out;
    request.bytes = bytes;
    request.data = data;
    request.on = stream;
    return alloc(&request);
}

trib_status tri_symmetric_free(struct trib_comm *comm, void *data)
{
    struct request request = request_of(comm, TRI_SYMMETRIC_FREE);
    request.data = data;
    return tri_all_ranks_run(comm, TRI_SYMMETRIC_FREE, run_free, &request);
}

/* ------------------------------------------------------------------------- the library's own memory */

/* An aborter frees what the answers are taken from. If the communicator is over, whatever is answered: all that
 * follows fails. */
static bool begin_asking(const struct trib_comm *comm)
{
    return comm->size > 1 && tri_abort_register(comm->state);
}

static void end_asking(const struct trib_comm *comm)
{
    tri_abort_unregister(comm->state);
}

trib_status tri_symmetric_bring(const struct tri_making *making)
{
    struct request request = request_of(making->comm, making->operation);
    const struct tri_symmetric_ops *ops = request.ops;
    if (!begin_asking(making->comm))
        return tri_comm_usable(making->comm, making->operation);
    const bool wants = refusal(making->comm) == NULL && ops->wants != NULL &&
                       ops->wants(making->comm->transport) != 0;
    end_asking(making->comm);
    return wants ? run_making(&request, making, bring) : TRIB_OK;
}

size_t tri_symmetric_near_from(const struct trib_comm *comm)
{
    size_t from = SIZE_MAX;
    if (!begin_asking(comm))
        return from;
    const struct tri_symmetric_ops *ops = comm->backend->transport->symmetric;
    if (refusal(comm) == NULL && ops->near_from != NULL)
        from = ops->near_from(comm->transport);
    end_asking(comm);
    return from;
}

bool tri_symmetric_serves(const struct trib_comm *comm, size_t count, trib_dtype dtype)
{
    if (!begin_asking(comm))
        return false;
    const struct tri_symmetric_ops *ops = comm->backend->transport->symmetric;
    const bool serves = is_elsewhere(comm) && refusal(comm) == NULL && ops->serves != NULL &&
                        ops->serves(comm->transport, count, dtype);
    end_asking(comm);
    return serves;
}

void tri_symmetric_drop(const struct trib_comm *comm, struct tri_symmetric *memory, bool in_use)
{
    if (memory == NULL)
        return;
    const struct tri_symmetric_ops *ops = comm->backend->transport->symmetric;
    if (!in_use)
        memory->spare = true;
    else if (ops->keep != NULL)
        ops->keep(comm->transport);
}

/* request->memory: the first spare one of this rank from `from` on, or NULL. Goes with its next vote. */
static void say_spare(struct request *request, struct tri_symmetric_place from)
{
    uint64_t *words = request->steps.said.words;
    const struct tri_symmetric *found = request->memory =
        tri_symmetric_spare(*request->ops->list(request->comm->transport), from);
    words[BYTES] = found == NULL ? UINT64_MAX : found->bytes;
    words[NUMBER] = found == NULL ? UINT64_MAX : found->number;
}

/* Have all ranks said the same? *last: the last of what they have said. */
static bool all_say_one(const struct request *request, struct tri_symmetric_place *last)
{
    bool one = true;
    for (int32_t rank = 0; rank < request->comm->size; rank++) {
        const uint64_t *words = request->steps.votes[rank].said.words;
        const struct tri_symmetric_place said = {words[BYTES], words[NUMBER]};
        one = one && (rank == 0 || (said.bytes == last->bytes && said.number == last->number));
        if (rank == 0 || tri_symmetric_before(*last, said))
            *last = said;
    }
    return one;
}

/* Each rank says what it has to spare, and asks on from the last that was said, until all say the same: an
 * allocation, or that there is none. The first vote is that of the arguments. */
static trib_status find_spare(struct request *request)
{
    struct tri_symmetric_place last = {request->bytes, 0};
    say_spare(request, last);
    TRI_TRY(agree(request, TRIB_OK, request->bytes, "packets of"));
    while (!all_say_one(request, &last)) {
        say_spare(request, last);
        TRI_TRY(tri_steps_vote(&request->steps, TRIB_OK));
    }
    return TRIB_OK;
}

static trib_status make_own(struct request *request)
{
    TRI_TRY(find_spare(request));
    if (request->memory == NULL)
        TRI_TRY(make_listed(request));
    request->memory->own = true;
    request->memory->spare = false;
    return TRIB_OK;
}

trib_status tri_symmetric_make(struct tri_symmetric **out, struct trib_comm *comm, int operation,
                               size_t bytes, trib_stream stream)
{
    struct request request = request_of(comm, operation);
    request.bytes = bytes;
    TRI_TRY(run(&request, stream, make_own));
    *out = request.memory;
    return TRIB_OK;
}

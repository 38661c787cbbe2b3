/* What all ranks must have in common. */
#include "csrc/sparse/agree.h"

#include <stdio.h>
#include <string.h>

#include "csrc/base/machine.h"
#include "csrc/core/deadline.h"
#include "csrc/core/match.h"
#include "csrc/core/small_allgather.h"
#include "csrc/core/validate.h"

/* What ranks send each other. */
struct vote {
    struct tri_proposal proposal;
    uint64_t number;  /* of which all get to know the smallest */
    int32_t status;   /* of the rank's own part */
    uint32_t refused; /* 1: there is no proposal, and `status` is why */
};
_Static_assert(sizeof(struct vote) <= TRI_STAGED_BYTES, "a vote is exchanged at once");

static int32_t place_of(const struct tri_algorithm *algorithm)
{
    int32_t place = 0;
    if (algorithm == NULL)
        return -1;
    while (strcmp(tri_algorithms[place]->name, algorithm->name) != 0)
        place++;
    return place;
}

struct tri_proposal tri_proposal_of(const struct tri_sparse_settings *settings,
                                    const struct tri_choice *choice, int operation, uint32_t number)
{
    const struct tri_sparse_params *params = &settings->params;
    const char *constants =
        params->constants == NULL ? NULL : tri_constants_name(params->constants);
    return (struct tri_proposal){
        .count = params->count,
        .k = params->k,
        .decay = params->decay,
        .constants = constants == NULL ? 0 : tri_digest(0, constants, strlen(constants)),
        .operation = operation,
        .algorithm = place_of(settings->algorithm),
        .chosen = place_of(choice->algorithm),
        .dtype = params->dtype,
        .wire = params->wire,
        .flags = settings->flags,
        .chunk = params->chunk,
        .norm_every = settings->norm_every,
        .number = number,
    };
}

uint32_t tri_proposal_signature(const struct tri_proposal *proposal)
{
    struct tri_proposal same = *proposal;
    same.operation = 0; /* how it came to its k does not matter */
    const uint64_t digest = tri_digest(0, &same, sizeof same);
    return (uint32_t)(digest ^ digest >> 32);
}

/* ----------------------------------------------------------------------------- what is different */

struct text {
    char name[16], value[64];
};

static const char *algorithm_name(int32_t place)
{
    return place < 0 ? "auto" : tri_algorithms[place]->name;
}

static void say_number(struct text *out, const char *name, double value)
{
    (void)snprintf(out->name, sizeof out->name, "%s", name);
    (void)snprintf(out->value, sizeof out->value, "%.17g", value);
}

static void say_word(struct text *out, const char *name, const char *value)
{
    (void)snprintf(out->name, sizeof out->name, "%s", name);
    (void)snprintf(out->value, sizeof out->value, "%s", value);
}

/* Field `what` of a proposal; false beyond the last. */
static bool describe(struct text *out, const struct tri_proposal *of, int what)
{
    switch (what) {
    case 0:
        say_word(out, "call", tri_operations[of->operation].name);
        return true;
    case 1:
        say_number(out, "count", (double)of->count);
        return true;
    case 2:
        say_word(out, "dtype", trib_dtype_name(of->dtype));
        return true;
    case 3:
        say_word(out, "algorithm", algorithm_name(of->algorithm));
        return true;
    case 4:
        say_number(out, "k", (double)of->k);
        return true;
    case 5:
        say_number(out, "flags", of->flags);
        return true;
    case 6:
        say_number(out, "decay", of->decay);
        return true;
    case 7:
        say_word(out, "wire", trib_dtype_name(of->wire));
        return true;
    case 8:
        say_number(out, "chunk", of->chunk);
        return true;
    case 9:
        say_number(out, "constants", (double)of->constants);
        return true;
    case 10:
        say_number(out, "norm_every", of->norm_every);
        return true;
    case 11:
        say_number(out, "number", (double)of->number);
        return true;
    case 12:
        say_word(out, "auto's choice", algorithm_name(of->chosen));
        return true;
    default:
        return false;
    }
}

static trib_status tell_difference(const struct trib_comm *comm, const struct vote *votes,
                                   int32_t rank, int operation)
{
    struct text first = {"", ""}, other = {"", ""};
    int what = 0;
    while (describe(&first, &votes[0].proposal, what) &&
           describe(&other, &votes[rank].proposal, what) && strcmp(first.value, other.value) == 0)
        what++;
    return tri_fail_call(comm, operation, TRIB_ERR_MISMATCH,
                         "%s is %s on rank %d and %s on rank 0: all ranks make the same states, of "
                         "the same tensors with the same options, in the same order; nothing was "
                         "changed",
                         other.name, other.value, rank, first.value);
}

/* Every rank compares with rank 0, so that all come to the same end. */
static trib_status count(const struct trib_comm *comm, const struct vote *votes, int operation)
{
    for (int32_t rank = 0; rank < comm->size; rank++)
        if (votes[rank].refused != 0)
            return tri_fail_call(comm, operation, TRIB_ERR_MISMATCH,
                                 "what rank %d was called with is refused there (%s): all ranks "
                                 "pass the same; nothing was changed",
                                 rank, trib_status_name(votes[rank].status));
    for (int32_t rank = 1; rank < comm->size; rank++)
        if (memcmp(&votes[rank].proposal, &votes[0].proposal, sizeof votes[0].proposal) != 0)
            return tell_difference(comm, votes, rank, operation);
    for (int32_t rank = 0; rank < comm->size; rank++)
        if (votes[rank].status != TRIB_OK)
            return tri_fail_call(comm, operation, votes[rank].status,
                                 "rank %d could not do its part (%s), so no rank does", rank,
                                 trib_status_name(votes[rank].status));
    return TRIB_OK;
}

static trib_status poll_ranks(struct trib_comm *comm, struct vote *own, trib_stream stream)
{
    const int operation = own->proposal.operation;
    struct vote votes[TRI_MAX_LISTS];
    const trib_status status =
        tri_small_allgather(comm, operation, own, sizeof *own, votes, stream);
    if (status != TRIB_OK || own->status != TRIB_OK)
        return status;
    for (int32_t rank = 0; rank < comm->size; rank++)
        own->number = votes[rank].number < own->number ? votes[rank].number : own->number;
    return count(comm, votes, operation);
}

/* What this rank itself has to say comes first, whatever the others do. */
static trib_status cast_vote(struct trib_comm *comm, struct vote *own, trib_stream stream)
{
    char detail[TRI_DETAIL_SIZE];
    (void)snprintf(detail, sizeof detail, "%s", own->status == TRIB_OK ? "" : tri_detail());
    const trib_status status = poll_ranks(comm, own, stream);
    return own->status == TRIB_OK ? status : tri_fail(own->status, "%s", detail);
}

trib_status tri_agree(struct trib_comm *comm, const struct tri_proposal *proposal, trib_status own,
                      uint64_t *least, trib_stream stream)
{
    struct vote vote = {.proposal = *proposal, .number = least == NULL ? 0 : *least, .status = own};
    const trib_status status = cast_vote(comm, &vote, stream);
    if (status == TRIB_OK && least != NULL)
        *least = vote.number;
    return status;
}

trib_status tri_agree_refused(struct trib_comm *comm, int operation, trib_status why,
                              trib_stream stream)
{
    struct vote vote = {.proposal = {.operation = operation}, .status = why, .refused = 1};
    return cast_vote(comm, &vote, stream);
}

trib_status tri_agree_hosts(struct trib_comm *comm, trib_stream stream)
{
    uint64_t machines[TRI_MAX_LISTS];
    const uint64_t own = tri_machine();
    int32_t hosts = 0;
    if (comm->hosts != 0)
        return TRIB_OK;
    const trib_status status =
        tri_small_allgather(comm, TRI_SPARSE_CREATE, &own, sizeof own, machines, stream);
    if (status != TRIB_OK)
        return status;
    for (int32_t rank = 0; rank < comm->size; rank++) {
        int32_t before = 0;
        while (machines[before] != machines[rank])
            before++;
        hosts += before == rank;
    }
    comm->hosts = hosts;
    return TRIB_OK;
}

/* ----------------------------------------------------------------------------------------- deadline */

/* With TRIB_MATCH: is the same function called everywhere? What it is given is compared after that,
 * always. */
static trib_status match(struct trib_comm *comm, int operation, trib_stream stream)
{
    const struct tri_call call = {.count = 0};
    const struct tri_signature signature = tri_signature(operation, &call, 0);
    if ((comm->flags & TRIB_MATCH) == 0)
        return TRIB_OK;
    const trib_status status = tri_match(comm, &signature, stream);
    return tri_match_done(comm, status); /* what follows tells the others itself */
}

/* The workspace, which the exchanges use, is waited for here and not by the stream: an abort would not
 * free that if work of the caller's holds the other stream. */
static trib_status meet(struct trib_comm *comm, int operation, tri_agreeing *call, void *argument)
{
    const struct tri_device_ops *device = comm->backend->device;
    trib_stream stream = NULL;
    trib_status status = device->stream_create(comm->device, &stream);
    if (status != TRIB_OK) { /* the others wait for this rank */
        (void)tri_abort_raise(comm->state, status, tri_detail());
        return status;
    }
    status = tri_deadline_wait(comm, operation, &comm->workspace);
    if (status == TRIB_OK)
        status = match(comm, operation, stream);
    if (status == TRIB_OK)
        status = call(argument, stream);
    (void)device->stream_destroy(comm->device, stream);
    return status;
}

trib_status tri_agree_meet(struct trib_comm *comm, int operation, tri_agreeing *call,
                           void *argument)
{
    struct tri_deadline deadline;
    trib_status status = tri_comm_usable(comm, operation);
    if (status == TRIB_OK)
        status = tri_deadline_begin(&deadline, comm, operation);
    if (status != TRIB_OK)
        return status;
    status = meet(comm, operation, call, argument);
    tri_deadline_end(&deadline);
    return status;
}

/* TRIB_MATCH: do all ranks make the same call? */
#include "csrc/core/match.h"

#include <stdio.h>
#include <string.h>

#include "csrc/base/types.h"
#include "csrc/core/communicator.h"
#include "csrc/core/operation.h"
#include "csrc/core/small_allgather.h"
#include "csrc/core/validate.h"

/* Without a factor the call is the plain operation. */
static int32_t named(int operation, const struct tri_call *call)
{
    if (call->scaled)
        return operation;
    if (operation == TRI_ALLREDUCE_WITH)
        return TRI_ALLREDUCE;
    return operation == TRI_ALLREDUCE_LIST_WITH ? TRI_ALLREDUCE_LIST : operation;
}

struct tri_signature tri_signature(int operation, const struct tri_call *call, uint64_t digest)
{
    const struct tri_operation *traits = &tri_operations[operation];
    return (struct tri_signature){
        .count = call->count,
        .digest = digest,
        .operation = named(operation, call),
        .dtype = call->dtype,
        .op = traits->reduces ? call->op : 0,
        .peer = traits->partner != NULL ? call->peer : 0,
        .variant = call->variant,
    };
}

/* FNV-1a. */
uint64_t tri_digest(uint64_t seed, const void *data, size_t bytes)
{
    const unsigned char *byte = data;
    uint64_t digest = seed ^ 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++)
        digest = (digest ^ byte[i]) * 0x100000001b3u;
    return digest;
}

/* The unit of an operation's count. */
static const char *counted(int operation)
{
    switch (operation) {
    case TRI_BATCH:
        return "collectives";
    case TRI_ALLREDUCE_LIST:
    case TRI_ALLREDUCE_LIST_WITH:
    case TRI_BROADCAST_LIST:
    case TRI_WEIGHTED_AVERAGE:
        return "tensors";
    default:
        return "count";
    }
}

struct description {
    char text[160];
};

static struct description describe(const struct tri_signature *signature)
{
    struct description description;
    const int operation = signature->operation;
    if (operation < 0 || operation >= TRI_OPERATIONS) {
        (void)snprintf(description.text, sizeof description.text, "something else");
        return description;
    }
    char parts[5][32] = {"", "", "", "", ""};
    if (signature->dtype != 0)
        (void)snprintf(parts[0], sizeof parts[0], ", %s", trib_dtype_name(signature->dtype));
    if (signature->op != 0)
        (void)snprintf(parts[1], sizeof parts[1], ", %s", trib_op_name(signature->op));
    if (tri_operations[operation].partner != NULL)
        (void)snprintf(parts[2], sizeof parts[2], ", %s %d", tri_operations[operation].partner,
                       signature->peer);
    if (signature->digest != 0)
        (void)snprintf(parts[3], sizeof parts[3], ", digest %08x",
                       (unsigned)(signature->digest ^ signature->digest >> 32));
    if (signature->variant != TRIB_VARIANT_AUTO)
        (void)snprintf(parts[4], sizeof parts[4], ", variant %s",
                       trib_variant_name(signature->variant));
    (void)snprintf(
        description.text, sizeof description.text, "trib_%s (call %llu, %s %llu%s%s%s%s%s)",
        tri_operations[operation].name, (unsigned long long)signature->sequence, counted(operation),
        (unsigned long long)signature->count, parts[0], parts[1], parts[2], parts[3], parts[4]);
    return description;
}

/* Every rank compares with rank 0, so that all get the same result. */
static trib_status compare(const struct trib_comm *comm)
{
    const struct tri_signature *all = comm->signatures;
    int32_t other = 1;
    while (other < comm->size && memcmp(&all[other], &all[0], sizeof all[0]) == 0)
        other++;
    if (other >= comm->size)
        return TRIB_OK;
    return tri_fail_call(comm, all[comm->rank].operation, TRIB_ERR_MISMATCH,
                         "rank %d calls %s while rank 0 calls %s; nothing was queued", other,
                         describe(&all[other]).text, describe(&all[0]).text);
}

_Static_assert(sizeof(struct tri_signature) <= TRI_STAGED_BYTES, "one small allgather takes it");

trib_status tri_match(struct trib_comm *comm, const struct tri_signature *signature,
                      trib_stream stream)
{
    struct tri_signature own = *signature;
    trib_status status = tri_check_not_captured(comm, signature->operation, stream);
    if (status != TRIB_OK)
        return status;
    own.sequence = ++comm->match_sequence;
    status =
        tri_small_allgather(comm, signature->operation, &own, sizeof own, comm->signatures, stream);
    if (status == TRIB_OK)
        status = compare(comm);
    comm->agreed = status == TRIB_OK;
    return status;
}

trib_status tri_match_done(struct trib_comm *comm, trib_status status)
{
    if (comm->agreed && status != TRIB_OK)
        (void)tri_abort_raise(comm->state, status, tri_detail());
    comm->agreed = false;
    return status;
}

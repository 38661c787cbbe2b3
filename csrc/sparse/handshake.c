/* The handshake of calls that all ranks make together. */
#include "csrc/sparse/handshake.h"

#include <stdio.h>
#include <string.h>

#include "csrc/base/machine.h"
#include "csrc/core/deadline.h"
#include "csrc/core/match.h"
#include "csrc/core/small_allgather.h"
#include "csrc/core/validate.h"
#include "csrc/sparse/hosts.h"

struct message {
    struct tri_handshake handshake;
    uint64_t least;    /* all ranks get the smallest one */
    int32_t status;    /* of the sender's preparations */
    uint32_t rejected; /* 1: there is no handshake, for the reason `status` */
};
_Static_assert(sizeof(struct message) <= TRI_STAGED_BYTES, "one small_allgather takes a message");

/* By name, which an algorithm and its published code share. -1: auto (NULL), or not in the
 * table. */
static int32_t index_of(const struct tri_algorithm *algorithm)
{
    for (int32_t index = 0; algorithm != NULL && tri_algorithms[index] != NULL; index++)
        if (strcmp(tri_algorithms[index]->name, algorithm->name) == 0)
            return index;
    return -1;
}

struct tri_handshake tri_handshake_of(const struct tri_sparse_settings *settings,
                                      const struct tri_choice *choice, int operation,
                                      uint32_t number)
{
    const struct tri_sparse_params *params = &settings->params;
    const char *constants =
        params->constants == NULL ? NULL : tri_constants_name(params->constants);
    return (struct tri_handshake){
        .count = params->count,
        .k = params->k,
        .decay = params->decay,
        .momentum = params->momentum,
        .clip = params->clip,
        .constants = constants == NULL ? 0 : tri_digest(0, constants, strlen(constants)),
        .hosts = settings->algorithm == &tri_sparse_hier
                     ? tri_digest(0, params->host_of, (size_t)params->size)
                     : 0,
        .operation = operation,
        .algorithm = index_of(settings->algorithm),
        .chosen = index_of(choice->algorithm),
        .dtype = params->dtype,
        .wire = params->wire,
        .flags = settings->flags,
        .chunk = params->chunk,
        .norm_every = settings->norm_every,
        .number = number,
    };
}

uint32_t tri_handshake_signature(const struct tri_handshake *handshake)
{
    struct tri_handshake state = *handshake;
    state.operation = 0; /* the state is the same, however it got its k */
    const uint64_t digest = tri_digest(0, &state, sizeof state);
    const uint32_t signature = (uint32_t)(digest ^ digest >> 32);
    return signature == 0 ? 1 : signature; /* 0: a packet that no rank is to apply */
}

/* ----------------------------------------------------------------------------------- comparison */

struct text {
    char data[64];
};

static void print_u32(struct text *out, const void *value)
{
    (void)snprintf(out->data, sizeof out->data, "%u", *(const uint32_t *)value);
}

static void print_u64(struct text *out, const void *value)
{
    const unsigned long long number = *(const uint64_t *)value;
    (void)snprintf(out->data, sizeof out->data, "%llu", number);
}

static void print_digest(struct text *out, const void *value)
{
    const unsigned long long number = *(const uint64_t *)value;
    (void)snprintf(out->data, sizeof out->data, "map %016llx", number);
}

static void print_f64(struct text *out, const void *value)
{
    (void)snprintf(out->data, sizeof out->data, "%.17g", *(const double *)value);
}

static void print_dtype(struct text *out, const void *value)
{
    const char *name = trib_dtype_name(*(const trib_dtype *)value);
    (void)snprintf(out->data, sizeof out->data, "%s", name);
}

/* The name of entry `index` of a table, or the index if it has none (NULL): another rank sent it,
 * and may run another version of the library. */
static void print_entry(struct text *out, const char *name, int32_t index)
{
    if (name != NULL)
        (void)snprintf(out->data, sizeof out->data, "%s", name);
    else
        (void)snprintf(out->data, sizeof out->data, "%d", (int)index);
}

static void print_algorithm(struct text *out, const void *value)
{
    const int32_t index = *(const int32_t *)value;
    const char *name = index == -1 ? "auto" : NULL;
    for (int32_t i = 0; i <= index && tri_algorithms[i] != NULL; i++)
        name = i == index ? tri_algorithms[i]->name : NULL;
    print_entry(out, name, index);
}

static void print_call(struct text *out, const void *value)
{
    const int32_t index = *(const int32_t *)value;
    const bool known = index >= 0 && index < TRI_OPERATIONS;
    print_entry(out, known ? tri_operations[index].name : NULL, index);
}

/* The fields of a handshake as details name them, in the order in which they are compared. */
static const struct field {
    const char *name;
    void (*print)(struct text *out, const void *value);
    size_t offset;
} fields[] = {
    {"call", print_call, offsetof(struct tri_handshake, operation)},
    {"count", print_u64, offsetof(struct tri_handshake, count)},
    {"dtype", print_dtype, offsetof(struct tri_handshake, dtype)},
    {"algorithm", print_algorithm, offsetof(struct tri_handshake, algorithm)},
    {"k", print_u64, offsetof(struct tri_handshake, k)},
    {"flags", print_u32, offsetof(struct tri_handshake, flags)},
    {"decay", print_f64, offsetof(struct tri_handshake, decay)},
    {"momentum", print_f64, offsetof(struct tri_handshake, momentum)},
    {"clip_norm / sqrt(ranks)", print_f64, offsetof(struct tri_handshake, clip)},
    {"wire", print_dtype, offsetof(struct tri_handshake, wire)},
    {"chunk", print_u32, offsetof(struct tri_handshake, chunk)},
    {"constants", print_u64, offsetof(struct tri_handshake, constants)},
    {"hosts", print_digest, offsetof(struct tri_handshake, hosts)},
    {"norm_every", print_u32, offsetof(struct tri_handshake, norm_every)},
    {"number", print_u64, offsetof(struct tri_handshake, number)},
    {"auto's choice", print_algorithm, offsetof(struct tri_handshake, chosen)},
};

/* Details name the first field in which `rank` differs from rank 0. */
static trib_status fail_difference(const struct trib_comm *comm, int operation,
                                   const struct message *messages, int32_t rank)
{
    const size_t last = sizeof fields / sizeof *fields - 1;
    struct text first, other;
    for (size_t i = 0;; i++) {
        fields[i].print(&first, (const char *)&messages[0].handshake + fields[i].offset);
        fields[i].print(&other, (const char *)&messages[rank].handshake + fields[i].offset);
        if (i < last && strcmp(first.data, other.data) == 0)
            continue;
        return tri_fail_call(comm, operation, TRIB_ERR_MISMATCH,
                             "%s is %s on rank %d and %s on rank 0: all ranks must make the same "
                             "states, of the same tensors with the same options, in the same "
                             "order; nothing was changed",
                             fields[i].name, other.data, rank, first.data);
    }
}

/* Every rank compares all with rank 0, so that all ranks return the same status. */
static trib_status compare(const struct trib_comm *comm, int operation,
                           const struct message *messages)
{
    for (int32_t rank = 0; rank < comm->size; rank++)
        if (messages[rank].rejected != 0)
            return tri_fail_call(comm, operation, TRIB_ERR_MISMATCH,
                                 "rank %d rejected its arguments (%s): all ranks must pass the "
                                 "same; nothing was changed",
                                 rank, trib_status_name(messages[rank].status));
    for (int32_t rank = 1; rank < comm->size; rank++)
        /* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): no padding */
        if (memcmp(&messages[rank].handshake, &messages[0].handshake,
                   sizeof messages[0].handshake) != 0)
            return fail_difference(comm, operation, messages, rank);
    for (int32_t rank = 0; rank < comm->size; rank++)
        if (messages[rank].status != TRIB_OK)
            return tri_fail_call(comm, operation, messages[rank].status,
                                 "rank %d failed (%s), so the call fails on all ranks; nothing was "
                                 "changed",
                                 rank, trib_status_name(messages[rank].status));
    return TRIB_OK;
}

static trib_status allgather(struct trib_comm *comm, struct message *own, trib_stream stream)
{
    const int operation = own->handshake.operation;
    struct message all[TRI_MAX_LISTS];
    TRI_TRY(tri_small_allgather(comm, operation, own, sizeof *own, all, stream));
    if (own->status != TRIB_OK)
        return TRIB_OK;
    for (int32_t rank = 0; rank < comm->size; rank++)
        own->least = all[rank].least < own->least ? all[rank].least : own->least;
    return compare(comm, operation, all);
}

/* A rank's own failure, with its detail, wins over what the others report. */
static trib_status exchange(struct trib_comm *comm, struct message *own, trib_stream stream)
{
    char detail[TRI_DETAIL_SIZE];
    (void)snprintf(detail, sizeof detail, "%s", own->status == TRIB_OK ? "" : tri_detail());
    const trib_status status = allgather(comm, own, stream);
    return own->status == TRIB_OK ? status : tri_fail(own->status, "%s", detail);
}

trib_status tri_handshake_exchange(struct trib_comm *comm, const struct tri_handshake *handshake,
                                   trib_status own, uint64_t *least, trib_stream stream)
{
    struct message message = {
        .handshake = *handshake, .least = least == NULL ? 0 : *least, .status = own};
    TRI_TRY(exchange(comm, &message, stream));
    if (least != NULL)
        *least = message.least;
    return TRIB_OK;
}

trib_status tri_handshake_reject(struct trib_comm *comm, int operation, trib_status why,
                                 trib_stream stream)
{
    struct message message = {.handshake = {.operation = operation}, .status = why, .rejected = 1};
    return exchange(comm, &message, stream);
}

trib_status tri_handshake_hosts(struct trib_comm *comm, trib_stream stream)
{
    uint64_t identities[TRI_MAX_LISTS];
    const uint64_t own = tri_machine_host();
    if (comm->hosts != 0)
        return TRIB_OK;
    TRI_TRY(tri_small_allgather(comm, TRI_SPARSE_CREATE, &own, sizeof own, identities, stream));
    comm->hosts = tri_hosts_number(comm->host_of, identities, comm->size);
    return TRIB_OK;
}

/* Export and import of the residuals and velocities of all gradients.
 *
 * An export is a head, the residuals in the order in which the gradients were passed, and with
 * momentum the velocities in the same order. It knows no buckets, so any reducer of the same
 * gradients can import it. */
#include <stdlib.h>
#include <string.h>

#include "csrc/base/types.h"
#include "csrc/core/all_ranks.h"
#include "csrc/core/deadline.h"
#include "csrc/core/match.h"
#include "csrc/core/validate.h"
#include "csrc/reducer/agree.h"
#include "csrc/reducer/states.h"

enum { VERSION = 1 };
static const char magic[8] = {'T', 'R', 'I', 'B', 'R', 'E', 'D', 'U'};

/* In native byte order: only machines of the same kind can import it. */
struct head {
    char magic[8];
    uint32_t version, velocities; /* 1: there are some */
    uint64_t bytes;               /* of all of it */
    uint64_t digest;              /* of what follows the head */
    uint64_t n, shapes;           /* gradients; digest of their counts and types */
};

/* ---------------------------------------------------------------------------------------- parts */

static const struct tri_slice *slice_of(const struct trib_reducer *reducer, size_t i)
{
    const struct tri_gradient *gradient = &reducer->layout.gradients[i];
    return gradient->bucket == TRI_NO_BUCKET ? NULL : &reducer->layout.slices[gradient->slice];
}

static size_t bytes_of(const struct tri_slice *slice)
{
    return slice == NULL ? 0 : slice->count * tri_reducer_kept_element(slice->dtype);
}

static uint64_t all_bytes(const struct trib_reducer *reducer)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < reducer->n; i++)
        bytes += bytes_of(slice_of(reducer, i));
    return bytes;
}

static struct head head_of(const struct trib_reducer *reducer)
{
    struct head head = {
        .version = VERSION, .velocities = reducer->sparse.momentum != 0, .n = reducer->n};
    memcpy(head.magic, magic, sizeof magic);
    for (size_t i = 0; i < reducer->n; i++) {
        const struct tri_slice *slice = slice_of(reducer, i);
        const uint64_t shape[] = {slice == NULL ? 0 : slice->count,
                                  slice == NULL ? 0 : (uint64_t)slice->dtype};
        head.shapes = tri_digest(head.shapes, shape, sizeof shape);
    }
    head.bytes = sizeof head + (1 + head.velocities) * all_bytes(reducer);
    return head;
}

/* Where bucket `b`'s state keeps the elements of gradient `i`. */
static char *place_of(const struct trib_reducer *reducer, const struct tri_kept *kept, size_t i,
                      bool velocity)
{
    const struct tri_slice *slice = slice_of(reducer, i);
    const struct tri_kept *of = &kept[reducer->layout.gradients[i].bucket];
    return (velocity ? of->velocity : of->residual) +
           slice->offset * tri_reducer_kept_element(slice->dtype);
}

/* What is done with one gradient's part of an export. */
typedef trib_status part_function(const struct trib_reducer *reducer, size_t i, char *place,
                                  char *part, size_t bytes);

static trib_status for_each_part(const struct trib_reducer *reducer, bool velocities, char *parts,
                                 part_function *function)
{
    struct tri_kept *kept = NULL;
    trib_status status =
        tri_reducer_states_find(&kept, reducer, reducer->states, reducer->layout.nbuckets);
    for (int of = 0; of <= velocities; of++)
        for (size_t i = 0; status == TRIB_OK && i < reducer->n; i++) {
            const size_t bytes = bytes_of(slice_of(reducer, i));
            if (bytes == 0)
                continue;
            status = function(reducer, i, place_of(reducer, kept, i, of != 0), parts, bytes);
            parts += bytes;
        }
    free(kept);
    return status;
}

static trib_status read_part(const struct trib_reducer *reducer, size_t i, char *place, char *part,
                             size_t bytes)
{
    (void)i;
    return reducer->backend->device->fetch(reducer->device, part, place, bytes, reducer->stream);
}

static trib_status write_part(const struct trib_reducer *reducer, size_t i, char *place, char *part,
                              size_t bytes)
{
    (void)i;
    return reducer->backend->device->fetch(reducer->device, place, part, bytes, reducer->stream);
}

static trib_status add_part(const struct trib_reducer *reducer, size_t i, char *place, char *part,
                            size_t bytes)
{
    const struct trib_sparse *state = reducer->states[reducer->layout.gradients[i].bucket];
    return tri_kept_add(state, TRI_REDUCER_IMPORT, place, part, bytes, reducer->stream);
}

/* --------------------------------------------------------------------------------------- export */

uint64_t tri_reducer_export_bytes(const struct trib_reducer *reducer)
{
    return reducer->states == NULL ? 0 : head_of(reducer).bytes;
}

trib_status tri_reducer_export(struct trib_reducer *reducer, void *out, size_t bytes)
{
    struct head head = head_of(reducer);
    TRI_TRY(tri_reducer_check_between(reducer, TRI_REDUCER_EXPORT));
    if (bytes < head.bytes)
        return tri_fail_call(reducer->comm, TRI_REDUCER_EXPORT, TRIB_ERR_INVALID_ARGUMENT,
                             "`bytes` is %zu; an export takes %llu: trib_reducer_export_bytes says "
                             "how many",
                             bytes, (unsigned long long)head.bytes);
    char *parts = (char *)out + sizeof head;
    TRI_TRY(tri_workspace_wait(&reducer->memory, reducer->stream));
    TRI_TRY(for_each_part(reducer, head.velocities != 0, parts, read_part));
    head.digest = tri_digest(0, parts, head.bytes - sizeof head);
    memcpy(out, &head, sizeof head);
    return TRIB_OK;
}

/* --------------------------------------------------------------------------------------- import */

/* The arguments of tri_reducer_import. */
struct import {
    struct trib_reducer *reducer;
    const char *data;
    size_t bytes;
};

static trib_status fail(const struct import *import, const char *what)
{
    return tri_fail_call(import->reducer->comm, TRI_REDUCER_IMPORT, TRIB_ERR_INVALID_ARGUMENT, "%s",
                         what);
}

/* The head's numbers are compared with those of this reducer, so none is used unchecked. */
static trib_status check(struct head *head, const struct import *import)
{
    const struct head own = head_of(import->reducer);
    TRI_TRY(tri_reducer_check_between(import->reducer, TRI_REDUCER_IMPORT));
    if (import->data == NULL)
        return fail(import, "`data` is NULL");
    if (import->bytes < sizeof *head)
        return fail(import, "`bytes` is less than the head of an export");
    memcpy(head, import->data, sizeof *head);
    if (memcmp(head->magic, magic, sizeof magic) != 0 || head->version != VERSION)
        return fail(import, "`data` is no export of trib_reducer_export of this version");
    if (head->n != own.n || head->shapes != own.shapes)
        return fail(import, "the export is of gradients of other counts or types");
    const uint64_t parts = all_bytes(import->reducer);
    if (head->velocities > 1 || head->bytes != sizeof *head + (1 + head->velocities) * parts ||
        head->bytes != import->bytes ||
        head->digest != tri_digest(0, import->data + sizeof *head, import->bytes - sizeof *head))
        return fail(import, "`data` is not a whole export of trib_reducer_export");
    if (head->velocities > own.velocities)
        return fail(import, "the export holds velocities, and this reducer has no momentum");
    return TRIB_OK;
}

static trib_status write(const struct import *import, const struct head *head)
{
    const struct trib_reducer *reducer = import->reducer;
    char *parts = (char *)(uintptr_t)import->data + sizeof *head; /* write_part reads it */
    if (head->velocities == 0)
        for (size_t b = 0; b < reducer->layout.nbuckets; b++)
            TRI_TRY(tri_sparse_zero_velocity(reducer->states[b], reducer->stream));
    TRI_TRY(for_each_part(reducer, head->velocities != 0, parts, write_part));
    for (size_t b = 0; b < reducer->layout.nbuckets; b++)
        tri_sparse_restart(reducer->states[b]);
    return reducer->backend->device->stream_wait(reducer->device, reducer->stream);
}

static trib_status replace(void *argument, trib_stream stream)
{
    const struct import *import = argument;
    struct trib_comm *comm = import->reducer->comm;
    struct head head;
    trib_status status = check(&head, import);
    if (status == TRIB_OK)
        status = tri_deadline_wait(comm, TRI_REDUCER_IMPORT, &import->reducer->memory);
    TRI_TRY(tri_reducer_agree(import->reducer, TRI_REDUCER_IMPORT, status, stream));
    status = write(import, &head);
    if (status != TRIB_OK) /* the others have imported */
        (void)tri_abort_raise(comm->state, status, tri_detail());
    return status;
}

/* On this rank alone. */
static trib_status add(const struct import *import)
{
    struct head head;
    TRI_TRY(check(&head, import));
    TRI_TRY(tri_workspace_wait(&import->reducer->memory, import->reducer->stream));
    return for_each_part(import->reducer, head.velocities != 0,
                         (char *)(uintptr_t)import->data + sizeof head, add_part);
}

trib_status tri_reducer_import(struct trib_reducer *reducer, const void *data, size_t bytes,
                               bool adds)
{
    struct import import = {reducer, data, bytes};
    return adds ? add(&import)
                : tri_all_ranks_run(reducer->comm, TRI_REDUCER_IMPORT, replace, &import);
}

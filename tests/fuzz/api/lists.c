/* Step: lists of tensors, of a rank or of a group. */
#include <math.h>
#include <string.h>

#include "tests/conformance/reference.h"
#include "tests/fuzz/api/world.h"

enum { TENSORS = 4, SLOT = ARENA / 8, MOST = 16 };
enum kind { SUM, BROADCAST, SUM_WITH, AVERAGE, KINDS };

struct list {
    struct world *world;
    enum kind kind;
    size_t n;
    trib_tensor tensors[FUZZ_RANKS][TENSORS];
    size_t at[TENSORS]; /* bytes of the arena */
    trib_op op;
    int32_t root;
    float weights[FUZZ_RANKS];
    double factor;
    bool null; /* no array of tensors */
    uint64_t seed;
    trib_stream streams[FUZZ_RANKS];
    struct verdicts verdicts;
};

/* -------------------------------------------------------------------------------------- validity */

static bool is_float(trib_dtype dtype)
{
    return dtype >= TRIB_F16 && dtype <= TRIB_F64;
}

static bool tensor_is_valid(const struct list *list, const trib_tensor *tensor, size_t i)
{
    if (tensor->dtype < TRIB_F16 || tensor->dtype > TRIB_U64 || tensor->reserved != 0)
        return false;
    if ((list->kind == AVERAGE || (list->kind == SUM_WITH && list->factor != 0)) &&
        !is_float(tensor->dtype))
        return false;
    if (tensor->count == 0)
        return true;
    const size_t element = trib_dtype_size(tensor->dtype);
    return tensor->data != NULL && list->at[i] % element == 0 &&
           tensor->count * element <= ARENA - list->at[i];
}

static bool overlap(const struct list *list, const trib_tensor *tensors, size_t i, size_t j)
{
    const size_t first = tensors[i].count * trib_dtype_size(tensors[i].dtype);
    const size_t second = tensors[j].count * trib_dtype_size(tensors[j].dtype);
    return first != 0 && second != 0 && list->at[i] < list->at[j] + second &&
           list->at[j] < list->at[i] + first;
}

static bool is_valid(const struct list *list, int r)
{
    const trib_tensor *tensors = list->tensors[r];
    if ((list->kind == SUM || list->kind == SUM_WITH) &&
        (list->op < TRIB_SUM || list->op > TRIB_AVG))
        return false;
    if (list->kind == SUM_WITH && list->factor != 0 && list->op != TRIB_SUM)
        return false;
    if (list->kind == BROADCAST && (list->root < 0 || list->root >= list->world->size))
        return false;
    if (list->null)
        return list->n == 0;
    for (size_t i = 0; i < list->n; i++) {
        if (!tensor_is_valid(list, &tensors[i], i))
            return false;
        for (size_t j = 0; j < i; j++)
            if (overlap(list, tensors, i, j))
                return false;
    }
    return true;
}

/* --------------------------------------------------------------------------------------- picking */

static trib_tensor pick_tensor(struct list *list, size_t i, bool bad)
{
    struct bytes *in = list->world->in;
    const bool floats = list->kind >= SUM_WITH;
    trib_tensor tensor = {.count = bytes_below(in, MOST),
                          .dtype = 1 + (trib_dtype)bytes_below(in, floats ? 4 : 10)};
    list->at[i] = i * SLOT + 8 * bytes_below(in, 8);
    if (!bad)
        return tensor;
    switch (bytes_below(in, 5)) {
    case 0:
        list->at[i] = bytes_u16(in) % ARENA;
        break;
    case 1:
        list->at[i] = (i / 2) * SLOT + bytes_below(in, 64);
        break;
    case 2:
        tensor.dtype = (trib_dtype)bytes_u8(in);
        break;
    case 3:
        tensor.reserved = bytes_u8(in);
        break;
    default:
        tensor.count = bytes_u16(in) % 2048;
    }
    return tensor;
}

static void pick_weights(struct list *list)
{
    const uint32_t how = bytes_below(list->world->in, 8);
    for (int r = 0; r < list->world->size; r++)
        list->weights[r] = how == 6 ? 0 : 1;
    if (how == 7)
        list->weights[list->world->size - 1] = bytes_rare(list->world->in, 2) ? -1 : (float)NAN;
}

static void pick_list(struct list *list)
{
    static const double factors[] = {1, 0.5, 2, 0};
    struct world *world = list->world;
    struct bytes *in = world->in;
    list->kind = (enum kind)bytes_below(in, world->group != NULL ? 2 : KINDS);
    list->n = bytes_below(in, TENSORS + 1);
    const bool bad = bytes_rare(in, 8);
    list->op = bad && bytes_rare(in, 4) ? (trib_op)bytes_u8(in) : 1 + (trib_op)bytes_below(in, 5);
    list->root = bad && bytes_rare(in, 4) ? (int32_t)bytes_u32(in)
                                          : (int32_t)bytes_below(in, (uint32_t)world->size);
    list->factor = factors[bytes_below(in, 4)];
    if (list->kind == SUM_WITH && list->factor != 0 && !bad)
        list->op = TRIB_SUM;
    list->null = bad && bytes_rare(in, 8);
    pick_weights(list);
    for (size_t i = 0; i < list->n; i++) {
        const trib_tensor tensor = pick_tensor(list, i, bad && bytes_rare(in, 2));
        for (int r = 0; r < world->size; r++) {
            list->tensors[r][i] = tensor;
            list->tensors[r][i].data = world->ranks[r].memory + list->at[i];
        }
    }
    list->seed = world->seed + 1;
    world->seed += TENSORS;
}

/* --------------------------------------------------------------------------------------- calling */

static void make_list(int r, void *argument)
{
    struct list *list = argument;
    trib_comm *comm = list->world->ranks[r].comm;
    const trib_tensor *tensors = list->null ? NULL : list->tensors[r];
    const trib_stream stream = list->streams[r];
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    options.flags = list->factor != 0 ? TRIB_CALL_FACTOR : 0;
    options.factor = list->factor;
    trib_status *status = &list->verdicts.status[r];
    switch (list->kind) {
    case SUM:
        *status = STATUS(trib_allreduce_list(comm, tensors, list->n, list->op, stream));
        break;
    case SUM_WITH:
        *status =
            STATUS(trib_allreduce_list_with(comm, tensors, list->n, list->op, &options, stream));
        break;
    case BROADCAST:
        *status = STATUS(trib_broadcast_list(comm, tensors, list->n, list->root, stream));
        break;
    default:
        *status = STATUS(
            trib_weighted_average(comm, tensors, list->n, list->weights[r], NULL, NULL, stream));
    }
}

static void make_group_list(struct list *list)
{
    struct world *world = list->world;
    const trib_tensor *tensors[FUZZ_RANKS];
    bool valid = true;
    for (int r = 0; r < world->size; r++) {
        tensors[r] = list->null ? NULL : list->tensors[r];
        valid = valid && list->verdicts.valid[r];
    }
    const trib_status status =
        list->kind == SUM ? STATUS(trib_group_allreduce_list(world->group, tensors, list->n,
                                                             list->op, list->streams))
                          : STATUS(trib_group_broadcast_list(world->group, tensors, list->n,
                                                             list->root, list->streams));
    for (int r = 0; r < world->size; r++) {
        list->verdicts.status[r] = status;
        list->verdicts.valid[r] = valid;
    }
}

/* --------------------------------------------------------------------------------------- results */

static struct reference inputs_of(const struct list *list, size_t i)
{
    const trib_op op = list->kind == BROADCAST ? REFERENCE_MOVED
                       : list->kind == AVERAGE ? TRIB_AVG
                                               : list->op;
    return (struct reference){list->tensors[0][i].dtype, op, list->world->size, list->seed + i};
}

static void expect(const struct list *list, size_t i, uint8_t *data)
{
    const struct reference inputs = inputs_of(list, i);
    const size_t count = list->tensors[0][i].count;
    if (list->kind == BROADCAST)
        reference_input(data, &inputs, list->root, 0, count);
    else
        reference_reduced(data, &inputs, 0, count);
    for (size_t e = 0; e < count && list->kind == SUM_WITH && list->factor != 0; e++)
        reference_store(data, inputs.dtype, e,
                        list->factor * reference_load(data, inputs.dtype, e));
}

static void fill(struct list *list, int r)
{
    uint8_t data[ARENA];
    for (size_t i = 0; i < list->n; i++) {
        const struct reference inputs = inputs_of(list, i);
        const size_t count = list->tensors[r][i].count;
        reference_input(data, &inputs, r, 0, count);
        world_fill(list->world, r, list->at[i], data, count * trib_dtype_size(inputs.dtype),
                   list->streams[r]);
    }
}

static void note_results(struct list *list, int r, bool known)
{
    uint8_t data[ARENA];
    const bool moved = list->kind != AVERAGE || list->weights[list->world->size - 1] == 1;
    for (size_t i = 0; i < list->n && moved; i++) {
        const trib_tensor *tensor = &list->tensors[r][i];
        if (known)
            expect(list, i, data);
        world_result(list->world, r, list->at[i], known ? data : NULL,
                     tensor->count * trib_dtype_size(tensor->dtype));
    }
}

/* ------------------------------------------------------------------------------------------ step */

/* Every list that was queued is committed, refused, or neither after an end; never more. */
static void check_counters(const struct world *world)
{
    for (int r = 0; r < world->size; r++) {
        trib_counters counters = TRIB_COUNTERS_INIT;
        if (world->ranks[r].comm == NULL)
            continue;
        MUST(trib_comm_counters(&counters, world->ranks[r].comm));
        FUZZ_CHECK(counters.lists_committed + counters.lists_refused <= counters.lists_queued);
    }
}

void step_list(struct world *world)
{
    struct list list = {.world = world};
    const int stream = (int)bytes_below(world->in, 1 + STREAMS);
    int valid = 0;
    pick_list(&list);
    for (int r = 0; r < world->size; r++) {
        list.verdicts.valid[r] =
            is_valid(&list, r) && (world->group != NULL || world->ranks[r].comm != NULL);
        valid += list.verdicts.valid[r];
        list.streams[r] = world_stream(world, r, stream);
    }
    if (valid != world->size && (world->flags & TRIB_UNCHECKED) != 0)
        return;
    for (int r = 0; r < world->size && valid == world->size; r++)
        fill(&list, r);
    if (world->group != NULL)
        make_group_list(&list);
    else
        world_each(world, false, make_list, &list);
    const bool known = world_judge(world, &list.verdicts);
    for (int r = 0; r < world->size; r++)
        if (world_may_write(&list.verdicts, r))
            note_results(&list, r, known);
    check_counters(world);
}

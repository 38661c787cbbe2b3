/* The words of a call, against the formulas of tributary.h: equal where sizes are fixed or follow
 * from what was chosen, not above them elsewhere. Words are of 4 bytes, and so are indices. */
#include <math.h>
#include <string.h>

#include "tests/conformance/sparse/sparse.h"

struct words {
    double sent, received;
};

/* Words of one entry that was chosen, and of one sum. */
static double chosen(const struct sparse_reference *reference)
{
    return (4 + (double)trib_dtype_size(reference->wire)) / 4;
}

static double value(const struct sparse_reference *reference)
{
    return (double)trib_dtype_size(reference->acc_dtype) / 4;
}

static double summed(const struct sparse_reference *reference)
{
    return 1 + value(reference);
}

/* Words of a message of `n` entries that were chosen; of 16-bit values the last word is counted
 * whole. */
static double list(const struct sparse_reference *reference, uint64_t n)
{
    return ceil((double)n * chosen(reference));
}

/* A ring: two rounds of all parts but the rank's own. */
static struct words allreduce(int rank, int size, size_t m, double words)
{
    const size_t r = (size_t)rank, part = m * (r + 1) / (size_t)size - m * r / (size_t)size;
    return (struct words){2 * words * (double)(m - part), 2 * words * (double)(m - part)};
}

/* A chain that begins at the root. */
static struct words broadcast(int rank, int size, int root, double words)
{
    return (struct words){rank == (root + size - 1) % size ? 0 : words, rank == root ? 0 : words};
}

/* Every rank sends `mine` to all others; `all` is the sum over the ranks. */
static struct words allgather(int size, double mine, double all)
{
    return (struct words){(size - 1) * mine, all - mine};
}

static void plus(struct words *words, struct words more)
{
    words->sent += more.sent;
    words->received += more.received;
}

/* ------------------------------------------------------------------------- one per algorithm */

static struct words of_gtopk(const struct sparse_reference *reference, int rank)
{
    const int size = reference->size;
    const double k = (double)reference->k;
    struct words words = broadcast(rank, size, 0, k * summed(reference));
    int power = 1, merges = 0;
    while (2 * power <= size)
        power *= 2;
    for (int sender = power; sender < size; sender++)
        if (sender - power == rank) {
            words.received += list(reference, reference->k);
            merges++;
        }
    if (rank >= power)
        words.sent += list(reference, reference->k);
    for (int s = 1; s < power && rank < power; s *= 2) {
        if (rank % (2 * s) != 0) { /* it sends, and is done */
            words.sent += merges == 0 ? list(reference, reference->k) : k * summed(reference);
            break;
        }
        /* From rank + s: what it chose, or sums if it has merged. */
        const bool first = s == 1 && rank + s + power >= size;
        words.received += first ? list(reference, reference->k) : k * summed(reference);
        merges++;
    }
    return words;
}

static uint64_t in_range(const unsigned char *marks, size_t begin, size_t end)
{
    uint64_t n = 0;
    for (size_t i = begin; i < end; i++)
        n += marks[i];
    return n;
}

/* topksa and gaussianksa: to the owners of equal regions, and the sums to all. */
static struct words of_regions(const struct sparse_reference *reference, int rank,
                               bool may_be_dense)
{
    const size_t n = reference->count, size = (size_t)reference->size, r = (size_t)rank,
                 begin = n * r / size, end = n * (r + 1) / size;
    const double all = (double)in_range(reference->support, 0, n) * summed(reference),
                 mine = (double)in_range(reference->support, begin, end) * summed(reference);
    struct words words = {0, 0};
    for (int other = 0; other < reference->size; other++) {
        const size_t o = (size_t)other;
        if (other == rank)
            continue;
        words.sent +=
            list(reference, in_range(reference->picked[rank], n * o / size, n * (o + 1) / size));
        words.received += list(reference, in_range(reference->picked[other], begin, end));
    }
    const double dense = (double)n * value(reference);
    if (may_be_dense && all >= dense)
        plus(&words, allgather(reference->size, (double)(end - begin) * value(reference), dense));
    else
        plus(&words, allgather(reference->size, mine, all));
    return words;
}

/* Lists of any length, from all to all. */
static struct words of_lists(const struct sparse_reference *reference, int rank)
{
    double all = 0;
    for (int other = 0; other < reference->size; other++)
        all += list(reference, reference->selected[other]);
    return allgather(reference->size, list(reference, reference->selected[rank]), all);
}

static struct words of_shared(const struct sparse_reference *reference, int rank)
{
    const int leader = (int)((reference->step - 1) % (uint64_t)reference->size);
    struct words words = broadcast(rank, reference->size, leader, (double)reference->k);
    plus(&words, allreduce(rank, reference->size, (size_t)reference->k, value(reference)));
    return words;
}

static struct words of_chunked(const struct sparse_reference *reference)
{
    const double slots = (double)((reference->count + reference->chunk - 1) / reference->chunk) *
                         (double)sparse_reference_chunk_k(reference),
                 mine = ceil(slots * (2 + (double)trib_dtype_size(reference->wire)) / 4);
    return allgather(reference->size, mine, mine * reference->size);
}

/* ---- hier: shards inside the hosts, packets between them, and what has come to their ranks */

/* All ranks, host after host. */
static void by_host(const struct sparse_reference *reference, int *order)
{
    bool counted[TEAM_MAX] = {false};
    int n = 0;
    for (int first = 0; first < reference->size; first++)
        for (int other = first; other < reference->size; other++)
            if (!counted[other] && sparse_reference_together(reference, first, other)) {
                counted[other] = true;
                order[n++] = other;
            }
}

/* The ranks that bring the packets of other hosts to the host of `rank`, whose ranks take turns. */
static void find_bringers(const struct sparse_reference *reference, int rank, int *bringer)
{
    int order[TEAM_MAX], mates[TEAM_MAX], n = 0, turn = 0;
    by_host(reference, order);
    for (int i = 0; i < reference->size; i++)
        if (sparse_reference_together(reference, rank, order[i]))
            mates[n++] = order[i];
    for (int i = 0; i < reference->size; i++) {
        const bool mate = sparse_reference_together(reference, rank, order[i]);
        bringer[order[i]] = mate ? -1 : mates[turn++ % n];
    }
}

static uint64_t packet_bytes(const struct sparse_reference *reference, uint64_t k)
{
    const uint64_t values = (64 + 4 * k + 15) / 16 * 16;
    return (values + k * trib_dtype_size(reference->wire) + 63) / 64 * 64;
}

/* Words of what `rank` brings: packets side by side are one message where the first ones fill their
 * places. They come host after host, as turns do. */
static double brought(const struct sparse_reference *reference, int rank, const int *bringer)
{
    uint64_t entries = sparse_reference_shard(reference, rank).k, largest = 0, last = entries;
    int order[TEAM_MAX];
    double words = 0;
    by_host(reference, order);
    for (int other = 0; other < reference->size; other++) {
        const uint64_t k = sparse_reference_shard(reference, other).k;
        largest = k > largest ? k : largest;
    }
    for (int i = 0; i < reference->size; i++) {
        const uint64_t k = sparse_reference_shard(reference, order[i]).k;
        if (bringer[order[i]] != rank)
            continue;
        if (packet_bytes(reference, last) != packet_bytes(reference, largest)) {
            words += list(reference, entries);
            entries = 0;
        }
        entries += k;
        last = k;
    }
    return words + list(reference, entries);
}

static struct words of_hier(const struct sparse_reference *reference, int rank)
{
    const struct sparse_shard own = sparse_reference_shard(reference, rank);
    struct words words = {0, 0};
    int here[TEAM_MAX], there[TEAM_MAX];
    find_bringers(reference, rank, here);
    const double mine = brought(reference, rank, here);
    for (int other = 0; other < reference->size; other++) {
        const struct sparse_shard shard = sparse_reference_shard(reference, other);
        if (other == rank)
            continue;
        if (sparse_reference_together(reference, rank, other)) {
            words.sent += (double)shard.n * value(reference) + mine;
            words.received += (double)own.n * value(reference) + brought(reference, other, here);
            continue;
        }
        find_bringers(reference, other, there);
        words.sent += there[rank] == other ? list(reference, own.k) : 0;
        words.received += here[other] == rank ? list(reference, shard.k) : 0;
    }
    return words;
}

/* NAN: not known to the word. */
static struct words expected(const struct sparse_trial *trial, int rank)
{
    const struct sparse_reference *reference = &trial->reference;
    const char *name = sparse_reference_algorithm(reference);
    const double packet = list(reference, reference->k);
    if (strcmp(name, "dense") == 0)
        return allreduce(rank, reference->size, reference->count,
                         reference->narrow ? 0.5 : value(reference));
    if (strcmp(name, "topka") == 0 || strcmp(name, "topka2") == 0)
        return allgather(reference->size, packet, packet * reference->size);
    if (strcmp(name, "topksa") == 0)
        return of_regions(reference, rank, !(trial->plan.flags & TRIB_SPARSE_ENTRIES));
    if (strcmp(name, "gaussianksa") == 0)
        return of_regions(reference, rank, false);
    if (strcmp(name, "gtopk") == 0)
        return of_gtopk(reference, rank);
    if (strcmp(name, "srs") == 0)
        return (struct words){sparse_reference_srs_words(reference),
                              sparse_reference_srs_words(reference)};
    if (strcmp(name, "shared") == 0)
        return of_shared(reference, rank);
    if (strcmp(name, "chunked") == 0)
        return of_chunked(reference);
    if (strcmp(name, "hier") == 0)
        return of_hier(reference, rank);
    if (strcmp(name, "oktopk") == 0)
        return (struct words){NAN, NAN};
    return of_lists(reference, rank);
}

/* oktopk: what goes to the owners, the step that balances, the blocks; by what was chosen. */
static struct words oktopk_bound(const struct sparse_reference *reference, int rank)
{
    const double size = reference->size,
                 kept = (double)in_range(reference->support, 0, reference->count),
                 block = ceil(kept / size), words = summed(reference);
    /* A message to each owner, and one from each rank, may end in half a word. */
    const double halves = (size - 1) * (ceil(chosen(reference)) - chosen(reference));
    double others = halves;
    for (int other = 0; other < reference->size; other++)
        others += other == rank ? 0 : (double)reference->selected[other] * chosen(reference);
    return (struct words){halves + (double)reference->selected[rank] * chosen(reference) +
                              words * kept + words * (size - 1) * block,
                          others + words * block + words * kept};
}

/* The published mode need not balance: then a rank may hold all that is gathered. */
static struct words oktopk_unbalanced(const struct sparse_reference *reference, int rank)
{
    struct words words = oktopk_bound(reference, rank);
    words.sent += summed(reference) * (reference->size - 1) *
                  (double)in_range(reference->support, 0, reference->count);
    return words;
}

static bool report(const struct sparse_trial *trial, int rank, double sent, double received,
                   struct words words)
{
    char text[256];
    return check_that(
        false, __FILE__, __LINE__,
        "%s, step %llu, rank %d: %.0f words sent, %.0f received; by the formula %.1f, "
        "%.1f",
        sparse_describe(&trial->plan, trial->team->size, text, sizeof text),
        (unsigned long long)trial->step, rank, sent, received, words.sent, words.received);
}

bool sparse_judge_volume(struct sparse_trial *trial)
{
    const int size = trial->team->size;
    double all_sent = 0, all_received = 0, bytes_sent = 0, bytes_received = 0;
    for (int rank = 0; rank < size; rank++) {
        const trib_sparse_statistics *after = &trial->ranks[rank].after,
                                     *before = &trial->ranks[rank].before;
        const double sent = (double)(after->words_sent - before->words_sent),
                     received = (double)(after->words_received - before->words_received);
        const struct words words = expected(trial, rank);
        const bool known = !isnan(words.sent);
        const struct words bound =
            known ? words
                  : (trial->plan.constants == NULL ? oktopk_bound
                                                   : oktopk_unbalanced)(&trial->reference, rank);
        if (size == 1 ? sent != 0 || received != 0
            : known   ? sent != words.sent || received != words.received
                      : sent > bound.sent || received > bound.received)
            return report(trial, rank, sent, received, bound);
        all_sent += sent;
        all_received += received;
        bytes_sent += (double)(after->bytes_sent - before->bytes_sent);
        bytes_received += (double)(after->bytes_received - before->bytes_received);
    }
    if (all_sent != all_received || bytes_sent != bytes_received || bytes_sent < 4 * all_sent)
        return check_that(false, __FILE__, __LINE__,
                          "%s: %.0f words sent, %.0f received; %.0f bytes sent, %.0f received",
                          trial->plan.algorithm, all_sent, all_received, bytes_sent,
                          bytes_received);
    return true;
}

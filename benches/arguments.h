/* The arguments of the programs, read strictly. An invalid one ends the program at once, with one
 * line that names the option, the text found and the text expected. */
#ifndef TRI_BENCHES_ARGUMENTS_H
#define TRI_BENCHES_ARGUMENTS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* An integer in [least, most]. */
int bench_integer(const char *option, const char *text, int least, int most);

/* "64K", "1M,25557032": numbers in [least, most] with an optional unit, powers of two, and commas
 * between. Returns their number, 1 to `room`. */
int bench_numbers(const char *option, const char *text, double least, double most, double *out,
                  int room);

/* The most numbers that a list of a program has. */
enum { BENCH_MAX_LIST = 16 };

/* The same for counts of elements, from `least` to UINT32_MAX, into a list. */
int bench_counts(const char *option, const char *text, double least, size_t *out);

enum bench_option_kind {
    BENCH_TEXT,    /* const char * */
    BENCH_INTEGER, /* int, in [least, most] */
    BENCH_BYTES,   /* size_t, from 1 on, with a unit */
    BENCH_SET,     /* bool: without a value; it becomes true */
    BENCH_CLEAR    /* bool: without a value; it becomes false */
};

/* One row of a table of options, which a row without a name ends. */
struct bench_option {
    const char *name; /* without its dashes */
    char letter;      /* 0: it has none */
    enum bench_option_kind kind;
    void *out; /* as the kind says */
    int least, most;
};

/* Reads the command line by the table. --help, -h and what is no option print `usage` and exit; an
 * argument that is left is refused, for every argument has a name. */
void bench_options(int argc, char **argv, const struct bench_option *options,
                   void (*usage)(const char *program));

/* Every name in `list`, separated by commas, is name(0), name(1), ... (NULL ends), or "all". */
void bench_known(const char *option, const char *list, const char *(*name)(int32_t index));

/* A file to write; NULL stays NULL. */
FILE *bench_file(const char *path);

/* For programs whose arguments have no names, at most `most` of them: --help, and what is no
 * argument of theirs. */
void bench_unnamed(int argc, char **argv, int most, const char *usage);

#endif

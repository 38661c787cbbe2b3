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

/* Every name in `list`, separated by commas, is name(0), name(1), ... (NULL ends), or "all". */
void bench_known(const char *option, const char *list, const char *(*name)(int32_t index));

/* A file to write; NULL stays NULL. */
FILE *bench_file(const char *path);

/* For programs whose arguments have no names, at most `most` of them: --help, and what is no
 * argument of theirs. */
void bench_unnamed(int argc, char **argv, int most, const char *usage);

#endif

#include "benches/arguments.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static _Noreturn void refuse(const char *option, const char *text, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static _Noreturn void refuse(const char *option, const char *text, const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "%s %s: ", option, text);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(EXIT_FAILURE);
}

int bench_integer(const char *option, const char *text, int least, int most)
{
    char *end;
    const long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || value < least || value > most)
        refuse(option, text, "expected an integer from %d to %d", least, most);
    return (int)value;
}

/* One number and its unit; NULL: there is none. */
static const char *number(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    const char *unit = *end == '\0' ? NULL : strchr("KMG", *end);
    if (unit != NULL) {
        *out = ldexp(*out, 10 * (int)(unit - "KMG" + 1));
        end++;
    }
    return end == text || (*end != ',' && *end != '\0') ? NULL : end;
}

int bench_numbers(const char *option, const char *text, double least, double most, double *out,
                  int room)
{
    int n = 0;
    for (const char *at = text; at != NULL; at = *at == ',' ? at + 1 : NULL) {
        if (n == room)
            refuse(option, text, "expected %d of them at most", room);
        at = number(at, &out[n]);
        if (at == NULL || !(out[n] >= least && out[n] <= most))
            refuse(option, text, "expected numbers from %.12g to %.12g%s", least, most,
                   room > 1 ? ", with commas between" : "");
        n++;
    }
    return n;
}

void bench_known(const char *option, const char *list, const char *(*name)(int32_t index))
{
    for (const char *at = list; at != NULL; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        const size_t length = strcspn(at, ",");
        int32_t i = 0;
        while (name(i) != NULL && (strlen(name(i)) != length || memcmp(at, name(i), length) != 0))
            i++;
        if (name(i) != NULL || strcmp(list, "all") == 0)
            continue;
        fprintf(stderr, "%s %s: \"%.*s\" is none of", option, list, (int)length, at);
        for (i = 0; name(i) != NULL; i++)
            fprintf(stderr, " %s,", name(i));
        fprintf(stderr, " nor all of them (all)\n");
        exit(EXIT_FAILURE);
    }
}

FILE *bench_file(const char *path)
{
    FILE *file = path == NULL ? NULL : fopen(path, "w");
    if (path != NULL && file == NULL) {
        perror(path);
        exit(EXIT_FAILURE);
    }
    return file;
}

void bench_unnamed(int argc, char **argv, int most, const char *usage)
{
    for (int i = 1; i < argc; i++) {
        const int help = strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0;
        if (!help && argv[i][0] != '-' && i <= most)
            continue;
        fprintf(help ? stdout : stderr, "usage: %s %s\n", argv[0], usage);
        exit(help ? EXIT_SUCCESS : EXIT_FAILURE);
    }
}

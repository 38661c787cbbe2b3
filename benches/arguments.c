#include "benches/arguments.h"

#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
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

int bench_counts(const char *option, const char *text, double least, size_t *out)
{
    double values[BENCH_MAX_LIST];
    const int n = bench_numbers(option, text, least, UINT32_MAX, values, BENCH_MAX_LIST);
    for (int i = 0; i < n; i++)
        out[i] = (size_t)values[i];
    return n;
}

/* ------------------------------------------------------------------------- tables of options */

enum { MOST_OPTIONS = 24 };

/* A table as getopt_long reads it: row i is the value i, and --help is 'h'. */
struct forms {
    struct option names[MOST_OPTIONS + 2];
    char letters[2 * MOST_OPTIONS + 2];
};

static bool has_value(const struct bench_option *option)
{
    return option->kind < BENCH_SET;
}

static struct forms make_forms(const struct bench_option *options)
{
    struct forms forms = {.letters = "h"};
    int n = 0;
    for (char *letter = forms.letters + 1; options[n].name != NULL; n++) {
        const bool value = has_value(&options[n]);
        forms.names[n] = (struct option){options[n].name, value, NULL, n};
        if (options[n].letter == 0)
            continue;
        *letter++ = options[n].letter;
        if (value)
            *letter++ = ':';
    }
    forms.names[n] = (struct option){"help", 0, NULL, 'h'};
    return forms;
}

/* The row that getopt_long has found; NULL: none, or --help. */
static const struct bench_option *find(const struct bench_option *options, int found)
{
    for (int i = 0; options[i].name != NULL; i++)
        if (found == i || (options[i].letter != 0 && found == options[i].letter))
            return &options[i];
    return NULL;
}

static void set(const struct bench_option *option, const char *text)
{
    char name[32];
    double bytes = 0;
    (void)snprintf(name, sizeof name, "--%s", option->name);
    switch (option->kind) {
    case BENCH_TEXT:
        *(const char **)option->out = text;
        break;
    case BENCH_INTEGER:
        *(int *)option->out = bench_integer(name, text, option->least, option->most);
        break;
    case BENCH_BYTES:
        (void)bench_numbers(name, text, 1, 0x1p40, &bytes, 1);
        *(size_t *)option->out = (size_t)bytes;
        break;
    default:
        *(bool *)option->out = option->kind == BENCH_SET;
        break;
    }
}

void bench_options(int argc, char **argv, const struct bench_option *options,
                   void (*usage)(const char *program))
{
    const struct forms forms = make_forms(options);
    int found;
    while ((found = getopt_long(argc, argv, forms.letters, forms.names, NULL)) != -1) {
        const struct bench_option *option = find(options, found);
        if (option == NULL) {
            usage(argv[0]);
            exit(found == 'h' ? EXIT_SUCCESS : EXIT_FAILURE);
        }
        set(option, optarg);
    }
    if (optind < argc) {
        fprintf(stderr, "%s: every argument has a name: see --help\n", argv[optind]);
        exit(EXIT_FAILURE);
    }
}

/* ------------------------------------------------------------------------------------- others */

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

/* Which lines of an operator's source no case reached. The build that `undefined` makes calls a function in each block
 * (programs/coverage.h), which marks where it was called from. All such calls are found in the machine code, on x86-64 alone; the
 * lines of those that were not marked come from addr2line, which is part of the compiler's tools. */
#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

enum { MOST_BLOCKS = 1 << 15, MAP = 1 << 22, NAME = 128 };
typedef struct block {
    uint32_t at;        /* behind the call */
    int32_t line, file; /* file: index of the source file; -1: the block is of another file */
    bool reached, ran;  /* ran: its function was called. Others are those of another operator */
    char function[NAME];
} block;

bool check_coverage_begin(const char *header, const char *map)
{
    const char *text = check_program("coverage.h");
    FILE *f = text ? fopen(header, "w") : NULL;
    const bool written = f && fputs(text, f) >= 0;
    const int fd = f && !fclose(f) && written ? open(map, O_RDWR | O_CREAT | O_TRUNC, 0600) : -1;
    const bool made = fd >= 0 && !ftruncate(fd, MAP);
    if (fd >= 0)
        close(fd);
    return made;
}

/* Where the function is called from, in the sections of code. */
static size_t find_calls(const unsigned char *elf, size_t size, uint64_t function, block *out)
{
    Elf64_Ehdr head;
    size_t n = 0;
    if (size < sizeof head)
        return 0;
    memcpy(&head, elf, sizeof head);
    for (size_t i = 0; head.e_machine == EM_X86_64 && i < head.e_shnum; i++) {
        Elf64_Shdr s;
        const uint64_t at = head.e_shoff + i * head.e_shentsize;
        if (at > size || size - at < sizeof s)
            break;
        memcpy(&s, elf + at, sizeof s);
        if (!(s.sh_flags & SHF_EXECINSTR) || s.sh_type != SHT_PROGBITS || s.sh_offset > size || s.sh_size > size - s.sh_offset)
            continue;
        for (uint64_t k = 0; k + 5 <= s.sh_size && n < MOST_BLOCKS; k++) {
            int32_t distance;
            memcpy(&distance, elf + s.sh_offset + k + 1, sizeof distance);
            const uint64_t behind = s.sh_addr + k + 5;
            if (elf[s.sh_offset + k] == 0xe8 && behind + (uint64_t)(int64_t)distance == function && behind < MAP)
                out[n++] = (block){ .at = (uint32_t)behind, .file = -1 };
        }
    }
    return n;
}

static const char *base_of(const char *path) { return strrchr(path, '/') ? strrchr(path, '/') + 1 : path; }

/* Returns the index of the source file that a path names, by the last part of both; -1: none. sources (or NULL) ends with NULL.
 */
static int32_t find_source(const char *const *sources, const char *path)
{
    for (int32_t i = 0; sources && sources[i]; i++)
        if (!strcmp(base_of(sources[i]), base_of(path)))
            return i;
    return -1;
}

/* addr2line's answer: for each address the function, then FILE:LINE. */
static void find_lines(const char *binary, const char *const *sources, block *blocks, size_t n)
{
    char path[4200], command[9000], line[4200];
    const int made = snprintf(path, sizeof path, "%s.calls", binary);
    FILE *f = made > 0 && (size_t)made < sizeof path && !strchr(binary, '\'') ? fopen(path, "w") : NULL;
    for (size_t i = 0; f && i < n; i++)
        fprintf(f, "0x%x\n", blocks[i].at - 1);
    if (!f || fclose(f))
        return;
    snprintf(command, sizeof command, "addr2line -f -e '%s' <'%s' 2>/dev/null", binary, path);
    FILE *answer = popen(command, "r");
    for (size_t i = 0; answer && i < n && fgets(blocks[i].function, NAME, answer) && fgets(line, sizeof line, answer); i++) {
        char *const colon = strrchr(line, ':');
        if (!colon)
            continue;
        blocks[i].line = (int32_t)strtol(colon + 1, NULL, 10);
        *colon = '\0';
        blocks[i].file = blocks[i].line > 0 ? find_source(sources, line) : -1;
    }
    if (answer)
        pclose(answer);
}

bool check_origin_line(const check_origin *origin, const char *const *sources, char *out, size_t size)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+"; /* without meaning for a shell */
    char command[400], line[4200];
    bool found = false, own = false;
    if (!*origin->object || !memchr(origin->object, 0, sizeof origin->object) || origin->object[strspn(origin->object, plain)])
        return false;
    snprintf(command, sizeof command, "addr2line -i -e %s 0x%llx 2>/dev/null", origin->object, (unsigned long long)origin->at);
    FILE *answer = popen(command, "r");
    while (answer && !own && fgets(line, sizeof line, answer)) { /* the innermost inlined function comes first */
        char *const colon = strrchr(line, ':');
        const long number = colon ? strtol(colon + 1, NULL, 10) : 0;
        if (number < 1)
            continue;
        *colon = 0;
        own = find_source(sources, line) >= 0;
        if (own || !found)
            snprintf(out, size, "%s:%ld", base_of(line), number);
        found = true;
    }
    if (answer)
        pclose(answer);
    return found;
}

static int by_line(const void *a, const void *b)
{
    const block *x = a, *y = b;
    return x->file != y->file ? (x->file > y->file) - (x->file < y->file) : (x->line > y->line) - (x->line < y->line);
}

static int by_function(const void *a, const void *b)
{
    const block *x = a, *y = b;
    return strcmp(x->function, y->function);
}

static void find_functions_that_ran(block *blocks, size_t n)
{
    qsort(blocks, n, sizeof *blocks, by_function);
    for (size_t i = 0, end; i < n; i = end) {
        bool any = false;
        for (end = i; end < n && !strcmp(blocks[end].function, blocks[i].function); end++)
            any |= blocks[end].reached;
        for (size_t k = i; k < end; k++)
            blocks[k].ran = any;
    }
}

/* Of one line: it is in a function that ran, and none of its blocks was reached. */
static bool is_unreached(const block *blocks, size_t from, size_t to)
{
    bool any = false;
    for (size_t i = from; i < to; i++)
        if (blocks[i].reached)
            return false;
        else
            any |= blocks[i].file >= 0 && blocks[i].ran;
    return any;
}

/* Returns a flag for each line of a text, counted from 1: true if a loop begins in the line or in the line before. *lines: an
 * upper bound of the line numbers. The caller frees the flags; NULL: out of memory. */
static bool *find_loops(const char *text, int32_t *lines)
{
    static const char *const words[] = { "for (", "while (", "for(", "while(" };
    *lines = 2;
    for (const char *s = text; *s; s++)
        *lines += *s == '\n';
    bool *in = calloc((size_t)*lines + 2, 1);
    for (int32_t at = 1; in && text; at++) {
        const char *const end = strchr(text, '\n');
        for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
            const char *const found = strstr(text, words[k]);
            if (found && (!end || found < end))
                in[at] = in[at + 1] = true;
        }
        text = end ? end + 1 : NULL;
    }
    return in;
}

/* Returns the line of the last loop of a function of source file `file`, if the function ran and no case reached the loop's body;
 * else 0. blocks are sorted by line. */
static int32_t find_unreached_loop(const block *blocks, size_t n, const char *source, int32_t file)
{
    size_t size;
    int32_t lines = 0, found = 0;
    char *const text = check_read(source, &size);
    bool *const in = text ? find_loops(text, &lines) : NULL;
    for (size_t i = n; i-- > 0 && in && !found;) {
        bool other = blocks[i].file != file || !blocks[i].ran || blocks[i].reached || blocks[i].line > lines ||
            !in[blocks[i].line];
        for (size_t k = 0; k < n && !other; k++) /* a loop that was reached, here or later */
            other = blocks[k].file == file && blocks[k].reached && blocks[k].line >= blocks[i].line && blocks[k].line <= lines &&
                in[blocks[k].line] && !strcmp(blocks[k].function, blocks[i].function);
        found = other ? 0 : blocks[i].line;
    }
    free(in);
    free(text);
    return found;
}

/* Prints the last loop that no case reached, of the first source file that has one. */
static void print_unreached_loop(const block *blocks, size_t n, const char *const *sources, char *out, size_t room)
{
    for (int32_t i = 0; sources[i] && !*out; i++) {
        const int32_t line = find_unreached_loop(blocks, n, sources[i], i);
        if (line)
            snprintf(out, room, sources[1] ? "line %d of %s" : "line %d", (int)line, base_of(sources[i]));
    }
}

void check_unreached(
    const char *binary, const char *map, const char *const *sources, char *out, size_t room, char *loop, size_t loop_room)
{
    size_t size, mapped, used = 0;
    unsigned char *const elf = (void *)check_read(binary, &size), *const marks = (void *)check_read(map, &mapped);
    block *const blocks = calloc(MOST_BLOCKS, sizeof *blocks);
    uint64_t function = 0;
    *out = '\0';
    *loop = '\0';
    if (mapped == MAP)
        memcpy(&function, marks, sizeof function);
    const size_t n = elf && blocks && function ? find_calls(elf, size, function, blocks) : 0;
    for (size_t i = 0; i < n; i++)
        blocks[i].reached = marks[blocks[i].at];
    if (n) {
        find_lines(binary, sources, blocks, n);
        find_functions_that_ran(blocks, n);
        qsort(blocks, n, sizeof *blocks, by_line);
    }
    print_unreached_loop(blocks, n, sources, loop, loop_room);
    int32_t first = 0, last = 0, file = sources[1] ? -1 : 0; /* lines with nothing that was reached in between; 0: none */
    for (size_t i = 0, end; i <= n && used < room; i = end) {
        for (end = i; end < n && !by_line(blocks + end, blocks + i); end++)
            continue;
        const bool unreached = i < n && is_unreached(blocks, i, end);
        if (first && (!unreached || blocks[i].file != blocks[i - 1].file)) {
            const int32_t of = blocks[i - 1].file;
            if (of != file && used < room)
                used += (size_t)snprintf(out + used, room - used, "%s%s: ", used ? "; " : "", base_of(sources[of]));
            if (used < room)
                used += (size_t)snprintf(
                    out + used, room - used, last > first ? "%s%d-%d" : "%s%d", used && of == file ? ", " : "", first, last);
            file = of;
            first = 0;
        }
        if (unreached) {
            last = blocks[i].line;
            first = first ? first : last;
        }
        end += i == n;
    }
    if (used >= room && room > 4)
        strcpy(out + room - 5, " ...");
    free(blocks);
    free(marks);
    free(elf);
}

/* Source lines of an operator that no case reached.
 *
 * The build that property `undefined` makes calls a function in each basic block (gcc's -fsanitize-coverage=trace-pc;
 * programs/coverage.h), which marks the address that it was called from. All such calls are found in the machine code, on x86-64
 * only. addr2line, of the compiler's tools, gives the lines of unmarked calls. */
#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "programs.h"

enum { MAX_BLOCKS = 1 << 15, MAP_BYTES = 1 << 22, MAX_FUNCTION_NAME = 128 };
typedef struct coverage_block {
    uint32_t return_address;    /* address of the instruction after the call */
    int32_t line, file;         /* line: source line; file: index of the source file; -1: the block is in none of the sources */
    bool reached, function_ran; /* reached: a case ran this block; function_ran: a case ran some block of its function */
    char function[MAX_FUNCTION_NAME];
} coverage_block;

const char *check_find_program_text(const char *name)
{
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (!strcmp(programs[i].path, name))
            return programs[i].data;
    return NULL;
}

bool check_try_write_coverage_files(const char *header_path, const char *map_path)
{
    const char *text = check_find_program_text("coverage.h");
    FILE *f = text ? fopen(header_path, "w") : NULL;
    const bool written = f && fputs(text, f) >= 0;
    const int fd = f && !fclose(f) && written ? open(map_path, O_RDWR | O_CREAT | O_TRUNC, 0600) : -1;
    const bool made = fd >= 0 && !ftruncate(fd, MAP_BYTES);
    if (fd >= 0)
        close(fd);
    return made;
}

/* Finds the direct calls of the function at function_address in the machine code of an ELF file, and writes a block for each to
 * `out`. Returns their number, at most MAX_BLOCKS; 0 if the file is not for x86-64. */
static size_t coverage_list_calls(const unsigned char *elf, size_t size, uint64_t function_address, coverage_block *out)
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
        for (uint64_t k = 0; k + 5 <= s.sh_size && n < MAX_BLOCKS; k++) {
            int32_t distance;
            memcpy(&distance, elf + s.sh_offset + k + 1, sizeof distance);
            const uint64_t behind = s.sh_addr + k + 5;
            if (elf[s.sh_offset + k] == 0xe8 && behind + (uint64_t)(int64_t)distance == function_address && behind < MAP_BYTES)
                out[n++] = (coverage_block){ .return_address = (uint32_t)behind, .file = -1 };
        }
    }
    return n;
}

/* Returns the part of a path after its last slash. */
static const char *coverage_get_basename(const char *path) { return strrchr(path, '/') ? strrchr(path, '/') + 1 : path; }

/* Returns the index of the first source with the same file name as `path`, folders ignored; -1 if there is none. sources: ended
 * by NULL, or NULL. */
static int32_t coverage_find_source_index(const char *const *sources, const char *path)
{
    for (int32_t i = 0; sources && sources[i]; i++)
        if (!strcmp(coverage_get_basename(sources[i]), coverage_get_basename(path)))
            return i;
    return -1;
}

/* Sets function, line and file of each block by running addr2line on the binary. If that fails, the blocks keep line 0 and file
 * -1. */
static void coverage_set_functions_and_lines(
    const char *binary, const char *const *sources, coverage_block *blocks, size_t nblocks)
{
    char path[4200], command[9000], line[4200];
    const int made = snprintf(path, sizeof path, "%s.calls", binary);
    FILE *f = made > 0 && (size_t)made < sizeof path && !strchr(binary, '\'') ? fopen(path, "w") : NULL;
    for (size_t i = 0; f && i < nblocks; i++)
        fprintf(f, "0x%x\n", blocks[i].return_address - 1);
    if (!f || fclose(f))
        return;
    snprintf(command, sizeof command, "addr2line -f -e '%s' <'%s' 2>/dev/null", binary, path);
    FILE *answer = popen(command, "r");
    for (size_t i = 0;
        answer && i < nblocks && fgets(blocks[i].function, MAX_FUNCTION_NAME, answer) && fgets(line, sizeof line, answer); i++) {
        char *const colon = strrchr(line, ':');
        if (!colon)
            continue;
        blocks[i].line = (int32_t)strtol(colon + 1, NULL, 10);
        *colon = '\0';
        blocks[i].file = blocks[i].line > 0 ? coverage_find_source_index(sources, line) : -1;
    }
    if (answer)
        pclose(answer);
}

bool check_try_format_origin_line(const check_fault_origin *origin, const char *const *sources, char *out, size_t size)
{
    static const char unquoted_characters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+"; /* characters that mean nothing to the shell */
    char command[400], line[4200];
    bool found = false, is_in_sources = false;
    if (!*origin->object || !memchr(origin->object, 0, sizeof origin->object) ||
        origin->object[strspn(origin->object, unquoted_characters)])
        return false;
    snprintf(command, sizeof command, "addr2line -i -e %s 0x%llx 2>/dev/null", origin->object,
        (unsigned long long)origin->file_address);
    FILE *answer = popen(command, "r");
    while (answer && !is_in_sources && fgets(line, sizeof line, answer)) { /* the innermost inlined function comes first */
        char *const colon = strrchr(line, ':');
        const long number = colon ? strtol(colon + 1, NULL, 10) : 0;
        if (number < 1)
            continue;
        *colon = 0;
        is_in_sources = coverage_find_source_index(sources, line) >= 0;
        if (is_in_sources || !found)
            snprintf(out, size, "%s:%ld", coverage_get_basename(line), number);
        found = true;
    }
    if (answer)
        pclose(answer);
    return found;
}

/* Compares two blocks by file and line, for qsort(). */
static int coverage_compare_lines(const void *a, const void *b)
{
    const coverage_block *x = a, *y = b;
    return x->file != y->file ? (x->file > y->file) - (x->file < y->file) : (x->line > y->line) - (x->line < y->line);
}

/* Compares two blocks by function, for qsort(). */
static int coverage_compare_functions(const void *a, const void *b)
{
    const coverage_block *x = a, *y = b;
    return strcmp(x->function, y->function);
}

/* Sets function_ran of each block whose function has some reached block. Sorts the blocks by function. */
static void coverage_mark_run_functions(coverage_block *blocks, size_t nblocks)
{
    qsort(blocks, nblocks, sizeof *blocks, coverage_compare_functions);
    for (size_t i = 0, end; i < nblocks; i = end) {
        bool any = false;
        for (end = i; end < nblocks && !strcmp(blocks[end].function, blocks[i].function); end++)
            any |= blocks[end].reached;
        for (size_t k = i; k < end; k++)
            blocks[k].function_ran = any;
    }
}

/* True if the blocks [begin, end), which are those of one line, are in a function that ran, and none of them was reached. */
static bool coverage_is_unreached_block_range(const coverage_block *blocks, size_t begin, size_t end)
{
    bool any = false;
    for (size_t i = begin; i < end; i++)
        if (blocks[i].reached)
            return false;
        else
            any |= blocks[i].file >= 0 && blocks[i].function_ran;
    return any;
}

/* Returns a new array of flags by line number, from 1: true if a for or while loop begins in that line or the one before.
 * *nlines: upper bound of line numbers. The caller frees the array. Returns NULL if memory is out. */
static bool *coverage_new_loop_line_flags(const char *text, int32_t *nlines)
{
    static const char *const words[] = { "for (", "while (", "for(", "while(" };
    *nlines = 2;
    for (const char *s = text; *s; s++)
        *nlines += *s == '\n';
    bool *flags = calloc((size_t)*nlines + 2, 1);
    for (int32_t at = 1; flags && text; at++) {
        const char *const end = strchr(text, '\n');
        for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
            const char *const found = strstr(text, words[k]);
            if (found && (!end || found < end))
                flags[at] = flags[at + 1] = true;
        }
        text = end ? end + 1 : NULL;
    }
    return flags;
}

/* Returns the line of the last loop of some function of source number file_index, if the function ran and no case reached the
 * loop's body; 0 if there is none. The blocks must be sorted by line. */
static int32_t coverage_find_unreached_loop_line(
    const coverage_block *blocks, size_t nblocks, const char *source, int32_t file_index)
{
    size_t size;
    int32_t lines = 0, found = 0;
    char *const text = check_new_file_contents(source, &size);
    bool *const in = text ? coverage_new_loop_line_flags(text, &lines) : NULL;
    for (size_t i = nblocks; i-- > 0 && in && !found;) {
        bool other = blocks[i].file != file_index || !blocks[i].function_ran || blocks[i].reached || blocks[i].line > lines ||
            !in[blocks[i].line];
        for (size_t k = 0; k < nblocks && !other; k++) /* some case reached a loop of the function here or later */
            other = blocks[k].file == file_index && blocks[k].reached && blocks[k].line >= blocks[i].line &&
                blocks[k].line <= lines && in[blocks[k].line] && !strcmp(blocks[k].function, blocks[i].function);
        found = other ? 0 : blocks[i].line;
    }
    free(in);
    free(text);
    return found;
}

/* Prints to `out` the line of a loop that no case reached, of the first source that has one, as "line 41" or "line 41 of a.c".
 * Prints nothing if there is none. */
static void coverage_print_unreached_loop(
    const coverage_block *blocks, size_t nblocks, const char *const *sources, char *out, size_t capacity)
{
    for (int32_t i = 0; sources[i] && !*out; i++) {
        const int32_t line = coverage_find_unreached_loop_line(blocks, nblocks, sources[i], i);
        if (line)
            snprintf(out, capacity, sources[1] ? "line %d of %s" : "line %d", (int)line, coverage_get_basename(sources[i]));
    }
}

void check_print_unreached_lines(const char *binary, const char *map_path, const char *const *sources, char *out, size_t capacity,
    char *unreached_loop, size_t unreached_loop_capacity)
{
    size_t size, mapped, used = 0;
    unsigned char *const elf = (void *)check_new_file_contents(binary, &size),
                         *const marks = (void *)check_new_file_contents(map_path, &mapped);
    coverage_block *const blocks = calloc(MAX_BLOCKS, sizeof *blocks);
    uint64_t function = 0;
    *out = '\0';
    *unreached_loop = '\0';
    if (mapped == MAP_BYTES)
        memcpy(&function, marks, sizeof function);
    const size_t n = elf && blocks && function ? coverage_list_calls(elf, size, function, blocks) : 0;
    for (size_t i = 0; i < n; i++)
        blocks[i].reached = marks[blocks[i].return_address];
    if (n) {
        coverage_set_functions_and_lines(binary, sources, blocks, n);
        coverage_mark_run_functions(blocks, n);
        qsort(blocks, n, sizeof *blocks, coverage_compare_lines);
    }
    coverage_print_unreached_loop(blocks, n, sources, unreached_loop, unreached_loop_capacity);
    int32_t first = 0, last = 0,
            file = sources[1] ? -1 : 0; /* range of unreached lines without a reached one between them; first 0: none */
    for (size_t i = 0, end; i <= n && used < capacity; i = end) {
        for (end = i; end < n && !coverage_compare_lines(blocks + end, blocks + i); end++)
            continue;
        const bool unreached = i < n && coverage_is_unreached_block_range(blocks, i, end);
        if (first && (!unreached || blocks[i].file != blocks[i - 1].file)) {
            const int32_t of = blocks[i - 1].file;
            if (of != file && used < capacity)
                used += (size_t)snprintf(
                    out + used, capacity - used, "%s%s: ", used ? "; " : "", coverage_get_basename(sources[of]));
            if (used < capacity)
                used += (size_t)snprintf(
                    out + used, capacity - used, last > first ? "%s%d-%d" : "%s%d", used && of == file ? ", " : "", first, last);
            file = of;
            first = 0;
        }
        if (unreached) {
            last = blocks[i].line;
            first = first ? first : last;
        }
        end += i == n;
    }
    if (used >= capacity && capacity > 4)
        strcpy(out + capacity - 5, " ...");
    free(blocks);
    free(marks);
    free(elf);
}

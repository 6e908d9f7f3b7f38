/* Reads the symbols and needed libraries of a binary or object file that was just written: 64-bit ELF, by section headers.
 * Offsets are checked against the file's size. */
#include "cli.h"

#include <elf.h>
#include <stdlib.h>

/* Returns the address of a range of the file; NULL: the range goes beyond the file. */
static const void *elf_find_range(const cli_text *file, uint64_t offset, uint64_t size)
{
    return offset <= file->size && size <= file->size - offset ? file->data + offset : NULL;
}

/* Returns a string of a string table by its offset; NULL: the offset or the string goes beyond the table. */
static const char *elf_find_string(const cli_text *file, const Elf64_Shdr *strings, uint64_t index)
{
    const char *s = index < strings->sh_size ? elf_find_range(file, strings->sh_offset + index, strings->sh_size - index) : NULL;
    return s && memchr(s, 0, strings->sh_size - index) ? s : NULL;
}

/* Appends a copy of a name to a list. */
static void elf_append_name(char ***list, size_t *n, const char *s)
{
    *list = cli_realloc_array(*list, *n + 1, sizeof **list);
    (*list)[(*n)++] = cli_format("%s", s);
}

/* Adds the names of a symbol table: defined visible symbols, and undefined weak ones. */
static void elf_read_symbols(const cli_text *file, const Elf64_Shdr *table, const Elf64_Shdr *strings, cli_elf *out)
{
    const Elf64_Sym *s = elf_find_range(file, table->sh_offset, table->sh_size);
    for (uint64_t i = 0; s && i < table->sh_size / sizeof *s; i++) {
        const char *name = elf_find_string(file, strings, s[i].st_name);
        const unsigned char visibility = ELF64_ST_VISIBILITY(s[i].st_other);
        const bool visible = table->sh_type == SHT_SYMTAB || visibility == STV_DEFAULT || visibility == STV_PROTECTED;
        if (!name || !*name || ELF64_ST_BIND(s[i].st_info) == STB_LOCAL)
            continue;
        if (s[i].st_shndx != SHN_UNDEF && visible)
            elf_append_name(&out->symbols, &out->nsymbols, name);
        else if (s[i].st_shndx == SHN_UNDEF && ELF64_ST_BIND(s[i].st_info) == STB_WEAK)
            elf_append_name(&out->undefined_weak, &out->nundefined_weak, name);
    }
}

/* Adds the names of the needed libraries in a dynamic section. */
static void elf_read_needed(const cli_text *file, const Elf64_Shdr *table, const Elf64_Shdr *strings, cli_elf *out)
{
    const Elf64_Dyn *d = elf_find_range(file, table->sh_offset, table->sh_size);
    for (uint64_t i = 0; d && i < table->sh_size / sizeof *d && d[i].d_tag != DT_NULL; i++) {
        const char *name = d[i].d_tag == DT_NEEDED ? elf_find_string(file, strings, d[i].d_un.d_val) : NULL;
        if (name)
            elf_append_name(&out->needed, &out->nneeded, name);
    }
}

int cli_elf_read(const char *path, cli_elf *out)
{
    cli_text file = { 0 };
    memset(out, 0, sizeof *out);
    int status = CLI_FAILED;
    if (cli_read_file(path, &file))
        goto done;
    const Elf64_Ehdr *h = elf_find_range(&file, 0, sizeof *h);
    const Elf64_Shdr *sections = h && !memcmp(h->e_ident, ELFMAG, SELFMAG) && h->e_ident[EI_CLASS] == ELFCLASS64
        ? elf_find_range(&file, h->e_shoff, (uint64_t)h->e_shnum * sizeof *sections)
        : NULL;
    if (!sections)
        goto done;
    for (uint16_t i = 0; i < h->e_shnum; i++) {
        if (sections[i].sh_link >= h->e_shnum)
            goto done;
        const Elf64_Shdr *strings = &sections[sections[i].sh_link];
        if (sections[i].sh_type == (h->e_type == ET_REL ? SHT_SYMTAB : SHT_DYNSYM))
            elf_read_symbols(&file, &sections[i], strings, out);
        if (sections[i].sh_type == SHT_DYNAMIC)
            elf_read_needed(&file, &sections[i], strings, out);
    }
    status = CLI_OK;
done:
    cli_text_free(&file);
    return status;
}

void cli_elf_free(cli_elf *e)
{
    for (size_t i = 0; i < e->nsymbols; i++)
        free(e->symbols[i]);
    for (size_t i = 0; i < e->nneeded; i++)
        free(e->needed[i]);
    for (size_t i = 0; i < e->nundefined_weak; i++)
        free(e->undefined_weak[i]);
    free(e->symbols);
    free(e->undefined_weak);
    free(e->needed);
    memset(e, 0, sizeof *e);
}

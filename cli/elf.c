/* Reader of the symbols and needed libraries of a binary or object file that was just written: 64-bit ELF, by section headers. */
#include "cli.h"

#include <elf.h>
#include <stdlib.h>

static const void *at(const cli_text *file, uint64_t offset, uint64_t size)
{
    return offset <= file->size && size <= file->size - offset ? file->data + offset : NULL;
}

static const char *string_at(const cli_text *file, const Elf64_Shdr *strings, uint64_t index)
{
    const char *s = index < strings->sh_size ? at(file, strings->sh_offset + index, strings->sh_size - index) : NULL;
    return s && memchr(s, 0, strings->sh_size - index) ? s : NULL;
}

static void push(char ***list, size_t *n, const char *s)
{
    *list = cli_alloc(*list, *n + 1, sizeof **list);
    (*list)[(*n)++] = cli_format("%s", s);
}

static void read_symbols(const cli_text *file, const Elf64_Shdr *table, const Elf64_Shdr *strings, cli_elf *out)
{
    const Elf64_Sym *s = at(file, table->sh_offset, table->sh_size);
    for (uint64_t i = 0; s && i < table->sh_size / sizeof *s; i++) {
        const char *name = string_at(file, strings, s[i].st_name);
        const unsigned char visibility = ELF64_ST_VISIBILITY(s[i].st_other);
        const bool visible = table->sh_type == SHT_SYMTAB || visibility == STV_DEFAULT || visibility == STV_PROTECTED;
        if (!name || !*name || ELF64_ST_BIND(s[i].st_info) == STB_LOCAL)
            continue;
        if (s[i].st_shndx != SHN_UNDEF && visible)
            push(&out->symbols, &out->nsymbols, name);
        else if (s[i].st_shndx == SHN_UNDEF && ELF64_ST_BIND(s[i].st_info) == STB_WEAK)
            push(&out->missing, &out->nmissing, name);
    }
}

static void read_needed(const cli_text *file, const Elf64_Shdr *table, const Elf64_Shdr *strings, cli_elf *out)
{
    const Elf64_Dyn *d = at(file, table->sh_offset, table->sh_size);
    for (uint64_t i = 0; d && i < table->sh_size / sizeof *d && d[i].d_tag != DT_NULL; i++) {
        const char *name = d[i].d_tag == DT_NEEDED ? string_at(file, strings, d[i].d_un.d_val) : NULL;
        if (name)
            push(&out->needed, &out->nneeded, name);
    }
}

int cli_elf_read(const char *path, cli_elf *out)
{
    cli_text file = { 0 };
    memset(out, 0, sizeof *out);
    int status = CLI_FAILED;
    if (cli_read_file(path, &file))
        goto done;
    const Elf64_Ehdr *h = at(&file, 0, sizeof *h);
    const Elf64_Shdr *sections = h && !memcmp(h->e_ident, ELFMAG, SELFMAG) && h->e_ident[EI_CLASS] == ELFCLASS64
        ? at(&file, h->e_shoff, (uint64_t)h->e_shnum * sizeof *sections)
        : NULL;
    if (!sections)
        goto done;
    for (uint16_t i = 0; i < h->e_shnum; i++) {
        if (sections[i].sh_link >= h->e_shnum)
            goto done;
        const Elf64_Shdr *strings = &sections[sections[i].sh_link];
        if (sections[i].sh_type == (h->e_type == ET_REL ? SHT_SYMTAB : SHT_DYNSYM))
            read_symbols(&file, &sections[i], strings, out);
        if (sections[i].sh_type == SHT_DYNAMIC)
            read_needed(&file, &sections[i], strings, out);
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
    for (size_t i = 0; i < e->nmissing; i++)
        free(e->missing[i]);
    free(e->symbols);
    free(e->missing);
    free(e->needed);
    memset(e, 0, sizeof *e);
}

/* console_page.S - the page, as cmake/page.cmake has put it together, plain and compressed; read by console_page.c. */
    .section .rodata
    .balign 16
    .global console_page_plain
    .global console_page_plain_end
    .global console_page_gzip
    .global console_page_gzip_end
    .hidden console_page_plain
    .hidden console_page_plain_end
    .hidden console_page_gzip
    .hidden console_page_gzip_end
console_page_plain:
    .incbin QUIRE_PAGE
console_page_plain_end:
    .balign 16
console_page_gzip:
    .incbin QUIRE_PAGE_GZIP
console_page_gzip_end:
    .section .note.GNU-stack, "", %progbits

# SPDX-License-Identifier: Apache-2.0
# Manuals and completions, made by the command itself from its table of options, and installed where man and
# the shells look: bash's package bash-completion, fish, zsh, and zsh as Debian has it.
set(pages "${CMAKE_BINARY_DIR}/share")
set(made "")
# kasane_page(FILE ARGUMENTS…): what `kasane help ARGUMENTS` prints.
function(kasane_page file)
  cmake_path(GET file PARENT_PATH folder)
  file(MAKE_DIRECTORY "${pages}/${folder}")
  list(JOIN ARGN " " arguments)
  add_custom_command(OUTPUT "${pages}/${file}" DEPENDS kasane_command VERBATIM
    COMMAND sh -c "\"$0\" help ${arguments} >\"$1\"" "$<TARGET_FILE:kasane_command>" "${pages}/${file}")
  set(made ${made} "${pages}/${file}" PARENT_SCOPE)
  install(FILES "${pages}/${file}" DESTINATION "${CMAKE_INSTALL_DATADIR}/${folder}" COMPONENT runtime)
endfunction()

kasane_page(man/man1/kasane.1 --man)
foreach(command run info bench plot)
  kasane_page(man/man1/kasane-${command}.1 --man ${command})
endforeach()
kasane_page(bash-completion/completions/kasane --completion bash)
kasane_page(zsh/site-functions/_kasane --completion zsh)
kasane_page(zsh/vendor-completions/_kasane --completion zsh)
kasane_page(fish/vendor_completions.d/kasane.fish --completion fish)
add_custom_target(kasane_pages ALL DEPENDS ${made})

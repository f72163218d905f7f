# What the Python package loads: the shared library, the torch operators, the command. The component
# "python" is all of a wheel.
add_library(pantile_torch SHARED python/torch_operators.c)
target_compile_definitions(pantile_torch PRIVATE PTL_BUILDING)
# Torch's errors are C++ exceptions, which pass through.
target_compile_options(pantile_torch PRIVATE -fexceptions)
target_link_libraries(pantile_torch PRIVATE pantile ${CMAKE_DL_LIBS})
set_target_properties(pantile_torch PROPERTIES INSTALL_RPATH "$ORIGIN")

if(SKBUILD)
    install(TARGETS pantile pantile_torch LIBRARY DESTINATION pantile COMPONENT python)
    install(TARGETS pantile_command RUNTIME DESTINATION pantile/bin COMPONENT python)
endif()

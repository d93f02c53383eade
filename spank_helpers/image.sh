# What the wrapper finds out about the container that is started: which command, which image, and what that image is.
# Each name begins with ls_, as in step.sh.

# ---- which command, and which image; at the first word that is not known for sure, nothing is.
# The options are those of SingularityCE 4 and Apptainer 1, as lumisite/render/runtimes.py has them with their sources.
ls_know_image() {
	ls_state=global ls_command='' ls_image='' ls_back='' ls_writable=''
	for ls_word; do
		case $ls_state in
		value) ls_state=$ls_back ;;
		global) ls_read_global ;;
		instance)
			case $ls_word in
			start | run) ls_command=instance ls_state=options ;;
			*) ls_state=other ;;
			esac
			;;
		options) ls_read_option ;;
		image) if [ -z "$ls_image" ]; then ls_image=$ls_word; fi ;;
		esac
		case $ls_state$ls_image in other | unsure | image?*) break ;; esac
	done
}
ls_read_global() {
	case $ls_word in
	--config | -c) ls_back=global ls_state=value ;;
	--build-config | --debug | --help | --nocolor | --quiet | --silent | --verbose | --version) ;;
	-d | -h | -q | -s | -v | --*=*) ;;
	-*) ls_command=unknown ls_state=unsure ;;
	instance) ls_state=instance ;;
	exec | run | shell | test) ls_command=$ls_word ls_state=options ;;
	*) ls_state=other ;;
	esac
}
ls_read_option() {
	case $ls_word in
	--) ls_state=image ;;
	--*=*) ;;
	--writable) ls_writable=1 ;;
	--add-caps | --app | --apply-cgroups | --arch | --authfile | --bind | --blkio-weight | --blkio-weight-device | \
		--cdi-dirs | --containlibs | --cpu-shares | --cpus | --cpuset-cpus | --cpuset-mems | --cwd | --data | \
		--device | --dns | --docker-host | --docker-password | --docker-username | --drop-caps | --env | --env-file | \
		--fusemount | --home | --hostname | --memory | --memory-reservation | --memory-swap | --mount | \
		--netns-path | --network | --network-args | --no-env | --no-mount | --overlay | --pem-path | --pid-file | \
		--pids-limit | --proot | --pwd | --runscript-timeout | --scratch | --security | --shell | --tmpdir | \
		--workdir)
		ls_back=options ls_state=value
		;;
	--allow-setuid | --boot | --cleanenv | --compat | --compat32 | --contain | --containall | --debug | \
		--disable-cache | --docker-login | --fakeroot | --help | --ignore-fakeroot-command | --ignore-subuid | \
		--ignore-userns | --intel-hpu | --ipc | --keep-layers | --keep-privs | --net | --no-compat | --no-eval | \
		--no-home | --no-https | --no-init | --no-nv | --no-oci | --no-pid | --no-privs | --no-rocm | --no-setgroups | \
		--no-tmp-sandbox | --no-umask | --nocolor | --nohttps | --nv | --nvccli | --oci | --oom-kill-disable | \
		--passphrase | --pid | --quiet | --rocm | --sharens | --sif-fuse | --silent | --tmp-sandbox | --underlay | \
		--unsquash | --userns | --uts | --verbose | --writable-tmpfs) ;;
	--*) ls_state=unsure ;;
	-?*) ls_read_letters ;;
	*) ls_image=$ls_word ls_state=image ;;
	esac
}
ls_read_letters() {
	ls_rest=${ls_word#-}
	while [ -n "$ls_rest" ]; do
		ls_letter=${ls_rest%"${ls_rest#?}"} ls_rest=${ls_rest#?}
		case $ls_command$ls_letter in
		*w) ls_writable=1 ;;
		*[Ccefhinpu]) ;;
		*[BHSWo] | shells)
			if [ -z "$ls_rest" ]; then ls_back=options ls_state=value; fi
			ls_rest=
			;;
		*) ls_state=unsure ls_rest='' ;;
		esac
	done
}

# ---- what the image is
# What a link leads to: the file decides what an image is, not its name. ls_path is what was typed, from the root on.
ls_know_file() {
	case $ls_image in
	/* | *://*) ls_path=$ls_image ;;
	*) ls_path=${PWD-}/${ls_image#./} ;;
	esac
	ls_file=$ls_path ls_rest=${ls_path%/*}
	case $ls_path in
	/*/../* | /../* | *//* | */./*) ;;
	/*) while [ -n "$ls_rest" ] && ! [ -L "$ls_rest" ]; do ls_rest=${ls_rest%/*}; done ;;
	*) ls_rest= ;;
	esac
	if [ -L "$ls_path" ]; then
		ls_rest=$(PATH=/usr/bin:/bin LD_PRELOAD='' LD_LIBRARY_PATH='' LD_AUDIT='' readlink -f -- "$ls_path" 2>/dev/null) ||
			ls_rest=
		case $ls_rest in /*) ls_file=$ls_rest ;; esac
	elif [ -n "$ls_rest" ]; then
		# A link among its folders is followed without a program.
		ls_rest=$(cd -P -- "${ls_path%/*}" >/dev/null 2>&1 && printf '%s/' "${PWD%/}") || ls_rest=
		case $ls_rest in /*) ls_file=$ls_rest${ls_path##*/} ;; esac
	fi
	# What stands before `..` is no part of the name.
	case $ls_path in */../*) ls_path=$ls_file ;; esac
}
# A plan that names the file itself, not only a pattern that fits it, counts more than one of the name that leads there.
ls_plan_of() {
	if ls_site_plan "$1" && [ -n "$ls_planned" ]; then return 0; fi
	ls_family='' ls_rocm='' ls_plugin='' ls_plan='' ls_planned=''
	return 1
}
ls_know_family() {
	ls_family='' ls_rocm='' ls_plugin='' ls_plan='' ls_planned='' ls_known='' ls_basis=name
	ls_mpi='' ls_needs='' ls_front='' ls_libraries='' ls_has='' ls_after=''
	if ls_site_family "${LUMISITE_FAMILY-}"; then
		ls_family=$LUMISITE_FAMILY
	else
		# Somebody has read this very file, or else its name tells.
		if ls_plan_of "$ls_file" || ls_site_plan "$ls_path" || ls_site_plan "$ls_file" || ls_site_image "$ls_file"; then
			ls_known=1
		fi
		# A name in the site's own folders is the site's word; one that a user chose is a guess.
		case $ls_file in */../*) ;; *) if ls_site_folder "$ls_file"; then ls_basis=site; fi ;; esac
		if [ -z "$ls_family" ] && ! ls_site_name "$ls_file"; then
			ls_basis=name
			ls_site_name "$ls_path" || :
		fi
		ls_site_family "$ls_family" || :
	fi
	# What was read in another file than this one, or in an earlier one of this name, does not count.
	if [ -n "$ls_known" ]; then
		if [ -n "$ls_planned" ] && [ -e "$ls_path" ] && ! [ "$ls_path" -ef "$ls_planned" ]; then ls_known=; fi
		if [ "$ls_file" -nt "$0" ]; then ls_known=; fi
	fi
	if [ -z "$ls_known" ]; then
		ls_rocm='' ls_plugin=$ls_has
		ls_read_rocm
	elif [ -z "$ls_plan" ] || [ -n "$ls_planned" ]; then
		# A plan whose pattern only fits the name was made for some other file.
		ls_basis=content
	fi
}
# ls_rocm is the release that stands behind the pattern ls_after in the file's path, as a number (6.2.4: 6002004; 70: 7000000;
# 100: 10000000; 714 may be 7.14 or 71.4, and is not known).
ls_read_rocm() {
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
	ls_rocm=$(((${ls_word%%.*} * 1000 + ${ls_rest%%.*}) * 1000 + ls_letter))
}

# frozen_string_literal: true

# For a server under test: to Ruby it seems that there is no /proc, and no /sys.
module WithoutProc
  HIDDEN = %r{\A/(proc|sys)(/|\z)}

  %i[read foreach readlines open stat lstat readlink each_child children entries].each do |name|
    define_method(name) do |path, *rest, **options, &block|
      raise Errno::ENOENT, path if HIDDEN.match?(path.to_s)

      super(path, *rest, **options, &block)
    end
  end

  %i[exist? readable? file? directory?].each do |name|
    define_method(name) { |path| !HIDDEN.match?(path.to_s) && super(path) }
  end

  [File, Dir].each { |type| type.singleton_class.prepend(self) }
end

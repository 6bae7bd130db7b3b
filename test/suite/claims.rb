# frozen_string_literal: true

module Fairlead
  class Suite
    # Folders that are this process's: a lock on a file beside each says so, and the kernel releases it however the process ends. So
    # what killed runs have left can be told from what is in use.
    module Claims
      SUFFIX = ".lock"
      FLAGS = File::RDWR | File::NOFOLLOW
      private_constant :SUFFIX, :FLAGS

      @held = {}

      class << self
        # Waits for whoever has it, or clears it away.
        #
        # @param folder [String] need not be there yet.
        # @param wait [Boolean] false: gives up if another process has it.
        # @return [Boolean] whether it is this process's.
        def take(folder, wait: true)
          until @held.key?(folder)
            file = File.open(folder + SUFFIX, FLAGS | File::CREAT, 0o600)
            taken = file.flock(wait ? File::LOCK_EX : File::LOCK_EX | File::LOCK_NB)
            taken && there?(file) ? @held[folder] = file : file.close
            return false unless taken
          end
          true
        end

        # A folder that could not be deleted is left to the next run.
        def release(folder)
          @held.delete(folder)&.then do |file|
            File.unlink(file.path) unless File.exist?(folder)
            file.close
          end
        end

        # Yields those of ended processes, to be deleted.
        #
        # @param pattern [String] of folders.
        # @yieldparam folder [String] need not be there.
        def clear_away(pattern)
          Dir.glob(pattern + SUFFIX).each do |path|
            File.open(path, FLAGS) do |file|
              next unless file.stat.owned? && file.flock(File::LOCK_EX | File::LOCK_NB) && there?(file)

              yield folder = path.delete_suffix(SUFFIX)
              File.unlink(path) unless File.exist?(folder)
            end
          rescue SystemCallError
            nil # it has just gone, or is another user's
          end
        end

        # In a child of this process, which may live for longer.
        def forget = @held.each_value(&:close).clear

        private

        # Whether nobody has deleted it before it was locked.
        def there?(file) = File.identical?(file.path, file)
      end
    end
  end
end

# frozen_string_literal: true

require "digest"
require "fileutils"
require "zlib"

module Bench
  # The public files that servers are asked for: some whose size is their name, and the assets of a page, of which those that are text
  # have a precompressed copy.
  module PublicFiles
    SIZES = { "1k.txt" => 1_000, "100k.txt" => 100_000, "10m.txt" => 10_000_000 }.freeze
    ASSETS = {
      "application.css" => 90_000, "icons.css" => 15_000, "turbo.js" => 100_000, "stimulus.js" => 45_000,
      **(1..8).to_h { |number| ["controllers/#{number}_controller.js", number * 1_500] },
      **(1..4).to_h { |number| ["icons/#{number}.svg", number * 1_000] }, "logo.svg" => 6_000,
      "hero.webp" => 120_000, **(1..10).to_h { |number| ["products/#{number}.webp", 10_000 + (number * 3_000)] },
      "sans.woff2" => 32_000, "sans-bold.woff2" => 34_000
    }.freeze
    TEXT = /\.(css|js|svg)\z/
    # What nginx alone has in place of the app's page: as long, and with the same end.
    PAGE_SIZE = 20_000
    PAGE_END = "<li>Product 39</li>"
    private_constant :SIZES, :ASSETS, :TEXT, :PAGE_SIZE, :PAGE_END

    module_function

    # @return [String] where they are.
    def folder = File.join(Toolchain::WORK, "public")

    # @return [String] a page as a file, outside of the folder.
    def page = File.join(Toolchain::WORK, "page.html")

    # @return [Array<String>] the paths of a page's assets, with a digest as Propshaft has it.
    def assets = ASSETS.keys.map { |name| "/assets/#{digested(name)}" }

    def prepare
      SIZES.each { |name, size| write(File.join(folder, name), size) { "x" * size } }
      ASSETS.each { |name, size| prepare_asset(File.join(folder, "assets", digested(name)), size) }
      write(page, PAGE_SIZE) { (text((PAGE_SIZE / 3) + 1) * 3)[0, PAGE_SIZE - PAGE_END.size] + PAGE_END }
    end

    def digested(name) = name.sub(/(?=\.\w+\z)/, "-#{Digest::SHA256.hexdigest(name)[0, 8]}")

    def prepare_asset(path, size)
      content = -> { path.match?(TEXT) ? text(size) : Random.new(size).bytes(size) }
      write(path, size, &content) and path.match?(TEXT) and File.binwrite("#{path}.gz", Zlib.gzip(File.read(path), level: 9))
    end

    # @yieldreturn [String]
    # @return [Boolean] whether it was written: not if it is there.
    def write(path, size)
      return false if File.size?(path) == size

      FileUtils.mkdir_p(File.dirname(path))
      File.binwrite(path, yield)
      true
    end

    # Words, of which gzip makes a third to a fourth, as it does of code.
    def text(size)
      random = Random.new(size)
      words = Array.new(200) { Array.new(random.rand(2..9)) { random.rand(97..122).chr }.join }
      text = +""
      text << words.sample(random:) << [" ", "(", ".", ";\n"].sample(random:) while text.size < size
      text[0, size]
    end
    private_class_method :digested, :prepare_asset, :write, :text
  end
end
